//! Requests: OpenAI's two APIs with the GPU's speed, an echo for all other paths, and the pages of
//! control.
//!
//! Faults meet the two APIs and the echo; `/health`, `/metrics`, `/ledger` and `/control` always
//! answer as long as the port is open.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};

use crate::capacity::Step;
use crate::fault::{Fault, Order};
use crate::gpu::{Generation, Gpu, Visit};
use crate::ledger::{End, Page, Presence};
use crate::metrics;
use crate::openai::{self, Api, Ask};
use crate::socket::Breaker;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
type Answer = Result<Response<Body>, io::Error>;

const STEERING_HEADER: &str = "x-gateway-destination-endpoint";
const WORK_HEADER: &str = "x-work-ms";
const BYTES_MAX: usize = 64 << 20;

/// A request at a GPU's own port.
pub(crate) async fn inference(
    gpu: Arc<Gpu>,
    breaker: Breaker,
    request: Request<Incoming>,
) -> Answer {
    let path = request.uri().path();
    match path {
        "/health" => return text(StatusCode::OK, "text/plain", String::new()),
        "/metrics" => return metrics_page(&gpu),
        "/ledger" => return page(StatusCode::OK, &ledger(&gpu)),
        "/control" => return order(&gpu, request).await,
        _ => {}
    }
    let steering = request.headers().contains_key(STEERING_HEADER);
    let (mut visit, fault) =
        gpu.arrive(if steering { Presence::Present } else { Presence::Absent });
    let refused = match fault {
        Fault::None | Fault::Slow | Fault::CutStream | Fault::Refuse => None,
        Fault::Error500 => Some(StatusCode::INTERNAL_SERVER_ERROR),
        Fault::Error503 => Some(StatusCode::SERVICE_UNAVAILABLE),
        Fault::Hang => std::future::pending().await,
        Fault::Reset => {
            visit.set(End::Broken);
            breaker.set();
            return Err(io::ErrorKind::ConnectionReset.into());
        }
    };
    let mut answer = match (refused, Api::at(path)) {
        (Some(status), _) => {
            visit.set(End::Answered(status.as_u16()));
            page(status, &openai::error(status.as_u16(), "scripted fault"))
        }
        (None, Some(api)) => complete(&gpu, breaker, visit, fault, api, request).await,
        (None, None) => echo(visit, request).await,
    }?;
    let served_by = gpu.address().to_string();
    if let Ok(value) = served_by.parse() {
        answer.headers_mut().insert("x-served-by", value);
    }
    Ok(answer)
}

async fn complete(
    gpu: &Arc<Gpu>,
    breaker: Breaker,
    mut visit: Visit,
    fault: Fault,
    api: Api,
    request: Request<Incoming>,
) -> Answer {
    let work_ms = work_ms(request.headers());
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    let ask = match Ask::parse(&body) {
        Ok(ask) => ask,
        Err(message) => {
            visit.set(End::Answered(400));
            return page(StatusCode::BAD_REQUEST, &openai::error(400, &message));
        }
    };
    let mut generation = gpu.generate(ask.job(&gpu.profile, work_ms));
    if ask.stream || fault == Fault::CutStream {
        return stream(gpu, breaker, visit, fault, api, generation);
    }
    let (mut queue_ms, mut first_ms) = (0.0, 0.0);
    while let Some(moment) = generation.next().await {
        match moment.step {
            Step::Admitted => queue_ms = moment.after_ms,
            Step::Piece(1) => first_ms = moment.after_ms,
            Step::Piece(_) => {}
            Step::Finished => break,
        }
    }
    let job = generation.job;
    let mut answer = page(StatusCode::OK, &openai::answer(api, &gpu.config.model, 1, &job))?;
    for (name, value_ms) in [("x-queue-ms", queue_ms), ("x-first-token-ms", first_ms)] {
        if let Ok(value) = format!("{value_ms:.3}").parse() {
            answer.headers_mut().insert(name, value);
        }
    }
    visit.set(End::Answered(200));
    Ok(answer)
}

/// Server-sent events: headers at once, as engines do, and a piece as soon as it is there.
fn stream(
    gpu: &Arc<Gpu>,
    breaker: Breaker,
    visit: Visit,
    fault: Fault,
    api: Api,
    generation: Generation,
) -> Answer {
    let model = gpu.config.model.clone();
    let start = (generation, visit, 0.0_f64, false);
    let events =
        futures::stream::unfold(start, move |(mut generation, mut visit, mut queue_ms, ended)| {
            let (model, breaker) = (model.clone(), breaker.clone());
            async move {
                if ended {
                    return None;
                }
                loop {
                    let moment = generation.next().await?;
                    let job = generation.job;
                    let (event, ended) = match moment.step {
                        Step::Admitted => {
                            queue_ms = moment.after_ms;
                            continue;
                        }
                        Step::Piece(piece) if piece > 1 && fault == Fault::CutStream => {
                            visit.set(End::Broken);
                            breaker.set();
                            let cut = Err(io::Error::from(io::ErrorKind::ConnectionReset));
                            return Some((cut, (generation, visit, queue_ms, true)));
                        }
                        Step::Piece(piece) => (openai::event(api, &model, 1, &job, piece), false),
                        Step::Finished => {
                            visit.set(End::Answered(200));
                            let last = json!({"id": "cmpl-1", "object": "usage", "choices": [],
                            "usage": openai::usage(&job), "queue_ms": queue_ms});
                            (format!("data: {last}\n\ndata: [DONE]\n\n"), true)
                        }
                    };
                    return Some((Ok(Bytes::from(event)), (generation, visit, queue_ms, ended)));
                }
            }
        });
    let body = StreamBody::new(events.map(|event| event.map(Frame::data))).boxed_unsync();
    let mut answer = Response::new(body);
    answer
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("text/event-stream"));
    Ok(answer)
}

/// Tells what reached the upstream; `/bytes/N` under any prefix answers with N bytes.
async fn echo(mut visit: Visit, request: Request<Incoming>) -> Answer {
    let (parts, mut body) = request.into_parts();
    let (mut length, mut hash) = (0usize, Fnv::default());
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            length += data.len();
            hash.add(&data);
        }
    }
    visit.set(End::Answered(200));
    if let Some((_, count)) = parts.uri.path().rsplit_once("/bytes/") {
        let count = count.parse::<usize>().unwrap_or(0).min(BYTES_MAX);
        let bytes: Vec<u8> = (0..count).map(|i| (i * 31 % 251) as u8).collect();
        return Ok(full(StatusCode::OK, "application/octet-stream", bytes.into()));
    }
    let headers: Vec<Value> = parts
        .headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    page(
        StatusCode::OK,
        &json!({"method": parts.method.as_str(), "path": target, "headers": headers,
            "body_bytes": length, "body_fnv1a": format!("{:016x}", hash.0)}),
    )
}

/// FNV-1a over 64 bits: enough to see that a body arrived as it was sent.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// A request at the control port: `/gpus/IP:PORT/control`, `/gpus/IP:PORT/ledger`, `/ledger`.
pub(crate) async fn control(gpus: Arc<[Arc<Gpu>]>, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    if path == "/ledger" {
        let all: Vec<Value> = gpus.iter().map(ledger).collect();
        return page(StatusCode::OK, &Value::Array(all));
    }
    let named = path.strip_prefix("/gpus/").and_then(|rest| rest.split_once('/'));
    let found = named.and_then(|(address, verb)| {
        let gpu = gpus.iter().find(|gpu| gpu.address().to_string() == address)?;
        Some((gpu, verb))
    });
    match found {
        Some((gpu, "ledger")) => page(StatusCode::OK, &ledger(gpu)),
        Some((gpu, "control")) => order(gpu, request).await,
        Some(_) | None => page(StatusCode::NOT_FOUND, &openai::error(404, "no such page")),
    }
}

async fn order(gpu: &Arc<Gpu>, request: Request<Incoming>) -> Answer {
    if request.method() != Method::POST {
        return page(StatusCode::METHOD_NOT_ALLOWED, &openai::error(405, "send a POST"));
    }
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    match Order::parse(&body) {
        Ok(order) => {
            gpu.obey(order);
            page(StatusCode::OK, &ledger(gpu))
        }
        Err(message) => page(StatusCode::BAD_REQUEST, &openai::error(400, &message)),
    }
}

fn ledger(gpu: &Arc<Gpu>) -> Value {
    let now = gpu.now();
    let state = gpu.state();
    let page = Page {
        address: gpu.address().to_string(),
        fault: gpu.fault(),
        running: now.running,
        waiting: now.waiting,
        last_request_age_ms: state.ledger.last_request_age_ms(),
        ledger: &state.ledger,
    };
    serde_json::to_value(page).unwrap_or_default()
}

fn metrics_page(gpu: &Arc<Gpu>) -> Answer {
    let now = gpu.now();
    let page = metrics::render(&gpu.config.model, now, &gpu.state().counters);
    text(StatusCode::OK, "text/plain; version=0.0.4", page)
}

/// Work in milliseconds at speed 1 that the header orders.
fn work_ms(headers: &HeaderMap) -> Option<f64> {
    let work_ms: f64 = headers.get(WORK_HEADER)?.to_str().ok()?.parse().ok()?;
    (0.0..=3_600_000.0).contains(&work_ms).then_some(work_ms.max(1e-3))
}

fn page(status: StatusCode, value: &Value) -> Answer {
    text(status, "application/json", value.to_string())
}

fn text(status: StatusCode, kind: &'static str, text: String) -> Answer {
    Ok(full(status, kind, text.into()))
}

fn full(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Body> {
    let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
    response
}
