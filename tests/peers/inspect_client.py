"""inspect-ai (PyPI) against `kvfold serve`: an answer with log-probabilities, and an evaluation of two samples with a scorer."""
import asyncio
import os

from inspect_ai import Task, eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import exact

import program
import served

args = program.parse(__doc__)
config = GenerateConfig(temperature=0, max_tokens=served.NEW, logprobs=True, top_logprobs=2)
with served.serve(args) as url:
    _, answer = served.answers(url)

    def model():
        return get_model("openai-api/kvfold/p", base_url=url + "/v1", api_key="none", config=config, memoize=False)

    said = asyncio.run(model().generate(served.QUESTION))
    program.expect("inspect-ai: chat", said.completion, answer)
    program.expect("inspect-ai: log-probabilities", len(said.choices[0].logprobs.content), said.usage.output_tokens)
    task = Task(dataset=[Sample(input=served.QUESTION, target=answer), Sample(input=served.QUESTION, target="none of these")], scorer=exact())
    log = evaluate(task, model=model(), log_dir=os.path.join(args.work, "inspect"), display="none")[0]
    program.expect("inspect-ai: evaluation", log.status, "success")
    program.expect("inspect-ai: scores", [sample.scores["exact"].value for sample in log.samples or []], ["C", "I"])
program.finish()
