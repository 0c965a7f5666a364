// What node-llama-cpp answers: node node_llama_cpp.mjs REQUEST.json, where node-llama-cpp is installed. See node_llama_cpp.py.
import {getLlama, JinjaTemplateChatWrapper, LlamaChatSession, LlamaLogLevel} from "node-llama-cpp";
import fs from "fs";

const request = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const llama = await getLlama({gpu: false, logLevel: LlamaLogLevel.error, build: "never", skipDownload: true, maxThreads: request.threads});
const model = await llama.loadModel({modelPath: request.model});
const context = await model.createContext({contextSize: 1024});
const sequence = context.getSequence();
const ids = request.folder ? JSON.parse(fs.readFileSync(`${request.folder}/placeholders.json`, "utf8")).ids : [];

async function restore() {
    await sequence.clearHistory();
    if (request.folder) await sequence.loadStateFromFile(`${request.folder}/prefix.state`, {acceptRisk: true});
}

// Greedy ids after a prompt; how many tokens were read for it.
async function answer(prompt) {
    const out = [], before = sequence.tokenMeter.usedInputTokens;
    for await (const token of sequence.evaluate(model.tokenize(prompt), {temperature: 0})) {
        if (model.isEogToken(token)) break;
        out.push(token);
        if (out.length === request.new) break;
    }
    return {ids: out, text: model.detokenize(out), read: sequence.tokenMeter.usedInputTokens - before};
}

async function nextToken(prompt) {
    const tokens = model.tokenize(prompt), last = tokens.length - 1;
    const probabilities = {generateNext: {probabilities: true, options: {temperature: 1, topK: 0, topP: 1, minP: 0}}};
    const found = await sequence.controlledEvaluate([...tokens.slice(0, last), [tokens[last], probabilities]]);
    const likeliest = [...found[last].next.probabilities.entries()].slice(0, request.likeliest);
    return {ids: tokens, logprobs: likeliest.map(([id, p]) => [id, Math.log(p)])};
}

// An answer, and the ids of the whole chat behind those that stand for the prefix.
async function chat(question) {
    const chatWrapper = new JinjaTemplateChatWrapper({template: fs.readFileSync(`${request.folder}/chat_template.jinja`, "utf8")});
    const session = new LlamaChatSession({contextSequence: sequence, chatWrapper, systemPrompt: request.system});
    const text = await session.prompt(question, {temperature: 0, maxTokens: request.new});
    return {text, chat: sequence.contextTokens.slice(ids.length)};
}

const answers = [];
for (const prompt of request.prompts) {
    await restore();
    answers.push(request.likeliest ? await nextToken(prompt) : request.system ? await chat(prompt) : await answer(prompt));
}
fs.writeFileSync(request.out, JSON.stringify(answers));
process.exit(0);
