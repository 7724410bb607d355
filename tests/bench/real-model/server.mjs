// Serves a small language model on the CPU with the routes of an OpenAI-compatible server: chat completions, plain and
// as SSE, health, and the engine metrics under vLLM's names, so that reporter and control plane see it like any GPU.
//
//   node server.mjs MODEL.gguf HOST:PORT
//
// A request takes one of SLOTS sequences of the context; the rest wait in order of arrival.

import http from "node:http";

import { getLlama, LlamaChatSession } from "node-llama-cpp";

const SLOTS = 2;
const BODY_BYTES_MAX = 1 << 20;
const TOKENS_MAX = 256;
// With more, the model's threads wait for each other by spinning: on two busy cores an answer took minutes, not seconds.
const THREADS = 1;

const [modelPath, listen] = process.argv.slice(2);
const [host, port] = listen.split(":");

const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ sequences: SLOTS, contextSize: 2048, threads: THREADS });

const waiting = [];
const count = { running: 0, finished: 0, tokens: 0 };

async function withSlot(work) {
  if (count.running >= SLOTS) await new Promise((resume) => waiting.push(resume));
  count.running += 1;
  const sequence = context.getSequence();
  try {
    return await work(sequence);
  } finally {
    sequence.dispose();
    count.running -= 1;
    waiting.shift()?.();
  }
}

async function body(request) {
  let text = "";
  for await (const chunk of request) {
    text += chunk;
    if (text.length > BODY_BYTES_MAX) throw new Error("body is too large");
  }
  return JSON.parse(text);
}

function choice(isStream, content, finish) {
  const part = isStream ? { delta: content === null ? {} : { content } } : { message: { role: "assistant", content } };
  return {
    object: isStream ? "chat.completion.chunk" : "chat.completion",
    model: "smollm2-135m",
    choices: [{ index: 0, ...part, finish_reason: finish }],
  };
}

async function complete(request, response) {
  let asked;
  try {
    asked = await body(request);
    if (!Array.isArray(asked.messages) || asked.messages.length === 0) throw new Error("messages is empty");
  } catch (error) {
    return answer(response, 400, { error: { message: String(error.message), type: "invalid_request_error" } });
  }
  const last = asked.messages.at(-1);
  const system = asked.messages.find((message) => message.role === "system");
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  response.setHeader("x-served-by", listen);
  await withSlot(async (contextSequence) => {
    const session = new LlamaChatSession({ contextSequence, systemPrompt: system?.content });
    const send = (data) => response.write(`data: ${data}\n\n`);
    if (asked.stream) response.writeHead(200, { "content-type": "text/event-stream" });
    const text = await session.prompt(String(last.content), {
      maxTokens: Math.min(asked.max_tokens ?? 64, TOKENS_MAX),
      temperature: asked.temperature ?? 0,
      signal: gone.signal,
      stopOnAbortSignal: true,
      onTextChunk(chunk) {
        count.tokens += 1;
        if (asked.stream) send(JSON.stringify(choice(true, chunk, null)));
      },
    });
    count.finished += 1;
    if (!asked.stream) return answer(response, 200, choice(false, text, "stop"));
    send(JSON.stringify(choice(true, null, "stop")));
    send("[DONE]");
    response.end();
  });
}

function metrics() {
  return [
    ["vllm:num_requests_running", "gauge", count.running],
    ["vllm:num_requests_waiting", "gauge", waiting.length],
    ["vllm:generation_tokens_total", "counter", count.tokens],
    ["vllm:request_success_total", "counter", count.finished],
  ]
    .map(([name, kind, value]) => `# TYPE ${name} ${kind}\n${name}{model_name="smollm2-135m"} ${value}\n`)
    .join("");
}

function answer(response, status, value) {
  const isText = typeof value === "string";
  response.writeHead(status, { "content-type": isText ? "text/plain; version=0.0.4" : "application/json" });
  response.end(isText ? value : JSON.stringify(value));
}

const server = http.createServer((request, response) => {
  const route = `${request.method} ${request.url}`;
  if (route === "POST /v1/chat/completions") {
    complete(request, response).catch((error) => {
      if (!response.headersSent) answer(response, 500, { error: { message: String(error), type: "server_error" } });
      else response.destroy();
    });
  } else if (route === "GET /health") answer(response, 200, { status: "ok" });
  else if (route === "GET /metrics") answer(response, 200, metrics());
  else answer(response, 404, { error: { message: `no route ${route}`, type: "not_found" } });
});
server.listen(Number(port), host, () => console.log(`listening on ${listen}`));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(0));
