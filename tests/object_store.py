"""A real S3 server, moto's, in this process, and what clients must know to use it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib import request

import pytest


@contextmanager
def s3_server() -> Iterator[str]:
    """A server with a bucket; gives the URL of a prefix in it. Child processes reach it too."""
    for package in ("moto", "s3fs", "flask"):
        pytest.importorskip(package, reason="needs automl-sweep[test]")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key-of-the-test",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
    }
    import s3fs

    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        try:
            request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"").close()
            s3fs.S3FileSystem.clear_instance_cache()  # of an earlier server
            s3fs.S3FileSystem(skip_instance_cache=True).mkdir("bucket")
            yield "s3://bucket/sweeps"
        finally:
            server.stop()
