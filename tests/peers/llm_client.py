"""The `llm` command (PyPI llm) against `kvfold serve`: a completion, a chat as a stream and not, the server as its extra models."""
import os
import subprocess
import sys

import program
import served

MODELS = """\
- {{model_id: kvfold-chat, model_name: p, api_base: {url}/v1}}
- {{model_id: kvfold-text, model_name: p, api_base: {url}/v1, completion: true}}
"""


def llm(home, model, prompt, *more):
    command = [os.path.join(os.path.dirname(sys.executable), "llm"), "-m", model, prompt, "--key", "none", "--no-log",
               "-o", "temperature", "0", "-o", "max_tokens", str(served.NEW), *more]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LLM_USER_PATH": home})
    return done.stdout.strip() if not done.returncode else done.stderr


args = program.parse(__doc__)
home = os.path.abspath(os.path.join(args.work, "llm"))
os.makedirs(home, exist_ok=True)
with served.serve(args) as url:
    completion, answer = served.answers(url)
    with open(os.path.join(home, "extra-openai-models.yaml"), "w", encoding="utf-8") as file:
        file.write(MODELS.format(url=url))
    program.expect("llm: completion", llm(home, "kvfold-text", served.PROMPT), completion.strip())
    program.expect("llm: chat, a stream", llm(home, "kvfold-chat", served.QUESTION), answer.strip())
    program.expect("llm: chat", llm(home, "kvfold-chat", served.QUESTION, "--no-stream"), answer.strip())
program.finish()
