"""`automl dashboard SWEEP`: serve the figures of the report as a live page."""

import time
import webbrowser

import click

from .common import opened, say, store_option, sweep_or_newest


@click.command("dashboard", short_help="Serve the report's figures as a live page.")
@sweep_or_newest
@store_option
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="Port of this machine.  [default: any]"
)
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
def command(sweep: str, store: str, port: int, open_browser: bool) -> None:
    """Serve the figures of a sweep as a page that follows it. Ctrl-C ends the page, not the sweep.

    Only this machine can reach the page, and only with the token in the printed address. From
    another machine: ssh -L PORT:127.0.0.1:PORT HOST.

    \b
    Examples:
      automl dashboard nmt
      automl dashboard nmt --port 8800 --open
    """
    from automl.report.dashboard import Dashboard
    from automl.report.dashboard_server import serving

    with opened(store) as ledger:
        board = Dashboard(ledger, sweep)
        with serving(board, port) as server:
            board.start()
            say(f"{sweep} is at {server.address}\nCtrl-C ends the page")
            if open_browser:
                webbrowser.open(server.address)
            try:
                while True:
                    time.sleep(3600)
            except KeyboardInterrupt:
                return
            finally:
                board.close()
