//! The OpenAI side: what a request asks for, and the answer's bytes.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::capacity::Job;
use crate::profile::Profile;

const DEFAULT_OUTPUT_TOKENS: u64 = 16;
const OUTPUT_TOKENS_MAX: u64 = 65_536;
/// A token is about four letters of English.
const BYTES_PER_TOKEN: usize = 4;
/// Events of a stream: enough to be a stream, few enough for a thousand of them a second.
const STREAM_PIECES_MAX: u64 = 16;
const WORDS: [&str; 8] = ["the", "tide", "comes", "in", "and", "goes", "out", "again"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Completions,
}

impl Api {
    pub(crate) fn at(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            _ => None,
        }
    }
}

/// The fields that count; engines ignore the others as well.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Ask {
    #[serde(default)]
    messages: Vec<Message>,
    #[serde(default)]
    prompt: Value,
    #[serde(default, alias = "max_completion_tokens")]
    max_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) stream: bool,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    content: Value,
}

impl Ask {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|error| format!("the body is no request: {error}"))
    }

    fn prompt_tokens(&self) -> u64 {
        let contents = self.messages.iter().map(|message| &message.content);
        let bytes: usize = contents.chain([&self.prompt]).map(text_bytes).sum();
        (bytes / BYTES_PER_TOKEN).max(1) as u64
    }

    /// The work of this request on `profile`, or `work_ms` in the same proportions.
    pub(crate) fn job(&self, profile: &Profile, work_ms: Option<f64>) -> Job {
        let prompt_tokens = self.prompt_tokens();
        let output_tokens =
            self.max_tokens.unwrap_or(DEFAULT_OUTPUT_TOKENS).clamp(1, OUTPUT_TOKENS_MAX);
        let mut prefill_ms = prompt_tokens as f64 * 1e3 / profile.prefill_tokens_per_s;
        let mut decode_ms = output_tokens as f64 * 1e3 / profile.decode_tokens_per_s;
        if let Some(work_ms) = work_ms {
            let factor = work_ms / (prefill_ms + decode_ms);
            prefill_ms *= factor;
            decode_ms *= factor;
        }
        // A plain answer still has a first token, which the metrics count.
        let most = if self.stream { STREAM_PIECES_MAX } else { 2 };
        let pieces = output_tokens.min(most);
        Job { prefill_ms, decode_ms, prompt_tokens, output_tokens, pieces }
    }
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(parts) => parts.iter().map(text_bytes).sum(),
        Value::Object(part) => part.get("text").map_or(0, text_bytes),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Tokens `from..to` of the answer; every token is a word.
pub(crate) fn words(from: u64, to: u64) -> String {
    let mut text = String::new();
    for i in from..to {
        text.push_str(WORDS[(i % WORDS.len() as u64) as usize]);
        text.push(' ');
    }
    text
}

pub(crate) fn answer(api: Api, model: &str, id: u64, job: &Job) -> Value {
    let text = words(0, job.output_tokens);
    let (object, choice) = match api {
        Api::Chat => (
            "chat.completion",
            json!({"index": 0, "finish_reason": "length",
                "message": {"role": "assistant", "content": text}}),
        ),
        Api::Completions => {
            ("text_completion", json!({"index": 0, "finish_reason": "length", "text": text}))
        }
    };
    json!({"id": format!("cmpl-{id}"), "object": object, "created": 0, "model": model,
        "choices": [choice], "usage": usage(job)})
}

pub(crate) fn usage(job: &Job) -> Value {
    json!({"prompt_tokens": job.prompt_tokens, "completion_tokens": job.output_tokens,
        "total_tokens": job.prompt_tokens + job.output_tokens})
}

/// One server-sent event with piece `piece` of the answer.
pub(crate) fn event(api: Api, model: &str, id: u64, job: &Job, piece: u64) -> String {
    let from = if piece > 1 { job.tokens_through(piece - 1) } else { 0 };
    let text = words(from, job.tokens_through(piece));
    let reason = if piece >= job.pieces { json!("length") } else { Value::Null };
    let (object, choice) = match api {
        Api::Chat => (
            "chat.completion.chunk",
            json!({"index": 0, "delta": {"content": text}, "finish_reason": reason}),
        ),
        Api::Completions => {
            ("text_completion", json!({"index": 0, "text": text, "finish_reason": reason}))
        }
    };
    let page = json!({"id": format!("cmpl-{id}"), "object": object, "created": 0, "model": model,
        "choices": [choice]});
    format!("data: {page}\n\n")
}

pub(crate) fn error(status: u16, message: &str) -> Value {
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    json!({"error": {"message": message, "type": kind, "code": status}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile::named("a100-80gb").unwrap()
    }

    #[test]
    fn work_comes_from_tokens() {
        let body = br#"{"messages":[{"role":"user","content":"12345678"},
            {"role":"user","content":[{"type":"text","text":"1234"}]}],"max_tokens":8}"#;
        let job = Ask::parse(body).unwrap().job(&profile(), None);
        // 12 bytes / 4 = 3 tokens at 8,000 a second; 8 tokens at 80 a second.
        assert_eq!((job.prompt_tokens, job.output_tokens, job.pieces), (3, 8, 2));
        assert_eq!((job.prefill_ms, job.decode_ms), (0.375, 100.0));
    }

    #[test]
    fn ordered_work_keeps_its_sum() {
        let ask = Ask::parse(br#"{"prompt":"hello tide","stream":true}"#).unwrap();
        let job = ask.job(&profile(), Some(500.0));
        assert!((job.prefill_ms + job.decode_ms - 500.0).abs() < 1e-9);
        assert_eq!(job.pieces, 16);
    }

    #[test]
    fn a_stream_says_the_same_words_as_a_plain_answer() {
        let job =
            Job { prefill_ms: 0.0, decode_ms: 1.0, prompt_tokens: 1, output_tokens: 37, pieces: 5 };
        let mut text = String::new();
        for piece in 1..=5 {
            let event = event(Api::Chat, "m", 1, &job, piece);
            let page: Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
            text.push_str(page["choices"][0]["delta"]["content"].as_str().unwrap());
        }
        assert_eq!(text, words(0, 37));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Ask::parse(b"7").is_err() && Ask::parse(b"\xff").is_err());
        assert!(Ask::parse(br#"{"max_tokens":-1}"#).is_err());
        let ask = Ask::parse(br#"{"max_tokens":0}"#).unwrap();
        assert_eq!(ask.job(&profile(), None).output_tokens, 1);
    }
}
