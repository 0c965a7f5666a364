"""langchain-openai (PyPI) against `kvfold serve`: a completion, a chat, a stream, a chain, log-probabilities."""
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI

import program
import served

args = program.parse(__doc__)
with served.serve(args) as url:
    completion, answer = served.answers(url)
    how = {"base_url": url + "/v1", "api_key": "none", "model": "p", "temperature": 0, "max_tokens": served.NEW}
    text, chat = OpenAI(**how), ChatOpenAI(**how)
    program.expect("langchain-openai: completion", text.invoke(served.PROMPT), completion)
    program.expect("langchain-openai: several completions", text.batch([served.PROMPT] * 3), [completion] * 3)
    program.expect("langchain-openai: chat", chat.invoke([("user", served.QUESTION)]).content, answer)
    program.expect("langchain-openai: stream", "".join(part.content for part in chat.stream([("user", served.QUESTION)])), answer)
    chain = ChatPromptTemplate.from_messages([("user", "{question}")]) | chat | StrOutputParser()
    program.expect("langchain-openai: chain", chain.invoke({"question": served.QUESTION}), answer)
    said = ChatOpenAI(**how, logprobs=True, top_logprobs=2).invoke([("user", served.QUESTION)])
    tokens = said.response_metadata["logprobs"]["content"]
    program.expect("langchain-openai: log-probabilities", len(tokens), said.usage_metadata["output_tokens"])
    program.expect("langchain-openai: the tokens are the text", "".join(token["token"] for token in tokens), answer)
    program.expect("langchain-openai: greedy is the likeliest",
                   all(token["logprob"] == token["top_logprobs"][0]["logprob"] for token in tokens), True)
program.finish()
