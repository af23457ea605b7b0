"""A client of a running service with KServe's own library (REST, protocol v1). Prints the responses as JSON.

    python -m venv kserve-venv && kserve-venv/bin/pip install kserve
    kserve-venv/bin/python experiments/kserve_client.py http://localhost:8080 mine '{"node": 5, "top": 3}'

It needs `kserve` and nothing of dgl-lara, whose versions of numpy and others differ. The client cannot list models, so
httpx does.
"""

import asyncio
import json
import sys
from importlib.metadata import version

import httpx
from kserve import InferenceRESTClient, RESTConfig


async def ask(address, name, instance):
    requested = {"instances": [instance]}
    result = {key: value for key, value in instance.items() if key != "top"}
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        answer = {
            "version": version("kserve"),
            "live": await client.is_server_live(address),
            "ready": await client.is_model_ready(address, name),
            "models": httpx.get(f"{address}/v1/models").json(),
            "predicted": await client.infer(address, {"instances": [result]}, model_name=name),
            "explained": await client.explain(address, name, requested),
        }
        try:
            await client.explain(address, name, {"instances": [{**instance, "node": 10**6}]})
        except httpx.HTTPStatusError as refused:
            answer["refused"] = str(refused)
        return answer


if __name__ == "__main__":
    print(json.dumps(asyncio.run(ask(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))))
