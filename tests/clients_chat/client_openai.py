"""Ask for every shape with openai-python: its chunks, its `.stream()` answer, or what that raised and its snapshot.

Usage: client_openai.py BASE_URL, shape names as a JSON list on stdin; JSON by name on stdout. It runs in environments
that have openai and nothing of ours.
"""

import json
import sys
import warnings

import openai

warnings.filterwarnings("ignore", message="Pydantic serializer warnings")
client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)


def read(name):
    request = {"model": name, "messages": [{"role": "user", "content": "hi"}]}
    options = {"stream_options": {"include_usage": True}}
    chunks = [
        chunk.model_dump(mode="json", exclude_unset=True)
        for chunk in client.chat.completions.create(**request, stream=True, **options)
    ]
    result = {"chunks": chunks}
    with client.chat.completions.stream(**request, **options) as stream:
        try:
            for _ in stream:
                pass
            answer = stream.get_final_completion()
        except Exception as error:
            result["raised"] = type(error).__name__
            answer = stream.current_completion_snapshot
    result["answer"] = answer.model_dump(mode="json")
    return result


json.dump({"version": openai.__version__, "shapes": {name: read(name) for name in json.load(sys.stdin)}}, sys.stdout)
