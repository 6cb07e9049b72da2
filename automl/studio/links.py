"""Links to other pages; only web pages are linked."""


def web_pages(dashboard: str) -> dict[str, str]:
    """Pages of the Ray dashboard; empty if there is none, or if its address is no web page."""
    if not dashboard.startswith(("http://", "https://")):
        return {}
    pages = {"Ray: jobs": "jobs", "actors (trials)": "actors", "logs": "logs", "cluster": "cluster"}
    return {name: f"{dashboard.rstrip('/')}/#/{page}" for name, page in pages.items()}
