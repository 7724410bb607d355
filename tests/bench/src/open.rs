//! The open-loop client: sends each arrival of a plan at its time, whatever became of those before, and notes what came
//! back. All times count from the arrival in the plan, so a client or proxy that falls behind shows as latency.
//!
//! Requests are OpenAI chat completions with `stream: true`; the first token is the first event with data, and an answer
//! counts as good only if it is a 200 that ends with `[DONE]`: a stream that breaks off is a failure however well it began.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::arrivals::Arrival;

/// A request that has no end by then counts as failed, with this as its time.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What became of one arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub at: Duration,
    /// Index of the arrival in the plan.
    pub index: usize,
    pub total: Duration,
    /// None if no token came.
    pub first_token: Option<Duration>,
    /// How long the model server says that it waited for a slot.
    pub queue_ms: Option<f64>,
    /// None if no answer at all came.
    pub status: Option<u16>,
    pub served_by: Option<SocketAddr>,
    pub is_ok: bool,
}

impl Sample {
    pub fn total_ms(&self) -> f64 {
        self.total.as_secs_f64() * 1_000.0
    }

    pub fn first_token_ms(&self) -> Option<f64> {
        self.first_token.map(|span| span.as_secs_f64() * 1_000.0)
    }
}

/// The samples so far, readable while the run goes on.
#[derive(Debug, Clone, Default)]
pub struct Record(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    samples: Mutex<Vec<Sample>>,
    sent: AtomicUsize,
}

impl Record {
    pub fn sent(&self) -> usize {
        self.0.sent.load(Ordering::Relaxed)
    }

    pub fn samples(&self) -> Vec<Sample> {
        self.since(0).0
    }

    /// Samples from the `from`th on, and where the next call has to begin.
    pub fn since(&self, from: usize) -> (Vec<Sample>, usize) {
        let samples = self.lock();
        (samples.get(from..).unwrap_or_default().to_vec(), samples.len())
    }

    fn push(&self, sample: Sample) {
        self.lock().push(sample);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sample>> {
        self.0.samples.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Where to send and what.
#[derive(Debug, Clone)]
pub struct Target {
    /// One listener per proxy; an arrival goes to the one it names, modulo their number.
    pub listeners: Vec<SocketAddr>,
    pub host: &'static str,
    /// Events an answer is cut into.
    pub tokens: u32,
    pub patience: Duration,
}

/// Sends the plan from `start` on and returns when every request has ended.
pub async fn run(plan: Arc<Vec<Arrival>>, target: Target, start: Instant, record: Record) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Http = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .build(connector);
    let target = Arc::new(target);
    let mut open = JoinSet::new();
    for (index, arrival) in plan.iter().enumerate() {
        let at = Duration::from_micros(arrival.at_us);
        sleep_until(start + at).await;
        while open.try_join_next().is_some() {}
        record.0.sent.fetch_add(1, Ordering::Relaxed);
        let (client, target, record, arrival) =
            (client.clone(), Arc::clone(&target), record.clone(), *arrival);
        open.spawn(async move {
            let due = start + at;
            let mut sample = Sample {
                at,
                index,
                total: target.patience,
                first_token: None,
                queue_ms: None,
                status: None,
                served_by: None,
                is_ok: false,
            };
            let ended = timeout_at(
                due + target.patience,
                send(&client, &target, arrival, due, &mut sample),
            )
            .await;
            if let Ok(is_ok) = ended {
                sample.total = due.elapsed();
                sample.is_ok = is_ok;
            }
            record.push(sample);
        });
    }
    while open.join_next().await.is_some() {}
}

type Http = Client<HttpConnector, Full<Bytes>>;

/// Whether the answer came whole; fills in what is known on the way, so that a timeout keeps it.
async fn send(
    client: &Http,
    target: &Target,
    arrival: Arrival,
    due: Instant,
    sample: &mut Sample,
) -> bool {
    let listener = target.listeners[usize::from(arrival.proxy) % target.listeners.len()];
    let body = format!(
        r#"{{"model":"tide-1b","stream":true,"max_tokens":{},"messages":[{{"role":"user","content":"How high is the tide?"}}]}}"#,
        target.tokens
    );
    let request = Request::post(format!("http://{listener}/v1/chat/completions"))
        .header(http::header::HOST, target.host)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header("x-work-ms", arrival.work_ms)
        .body(Full::new(Bytes::from(body)));
    let Ok(request) = request else { return false };
    let Ok(response) = client.request(request).await else { return false };
    sample.status = Some(response.status().as_u16());
    sample.served_by = response
        .headers()
        .get("x-served-by")
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok());
    let is_good = response.status() == StatusCode::OK;
    let mut body = response.into_body();
    let mut tail = Tail::default();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let Some(data) = frame.data_ref() else { continue };
        if is_good && sample.first_token.is_none() && !data.is_empty() {
            sample.first_token = Some(due.elapsed());
        }
        tail.push(data);
    }
    sample.queue_ms = tail.queue_ms();
    is_good && tail.is_done()
}

/// The last bytes of a stream, across frames: the usage event and the end.
#[derive(Debug, Default)]
struct Tail(Vec<u8>);

impl Tail {
    const END: &'static [u8] = b"data: [DONE]";
    const BYTES_MAX: usize = 512;

    fn push(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
        let excess = self.0.len().saturating_sub(Self::BYTES_MAX);
        self.0.drain(..excess);
    }

    fn is_done(&self) -> bool {
        self.0.trim_ascii_end().ends_with(Self::END)
    }

    fn queue_ms(&self) -> Option<f64> {
        let text = std::str::from_utf8(&self.0).ok()?;
        let (_, rest) = text.rsplit_once("\"queue_ms\":")?;
        rest.split(['}', ',']).next()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_found_across_frames_and_only_at_the_end() {
        let done = |frames: &[&str]| {
            let mut tail = Tail::default();
            frames.iter().for_each(|frame| tail.push(frame.as_bytes()));
            tail.is_done()
        };
        assert!(done(&["data: {}\n\n", "data: [DO", "NE]\n\n"]));
        assert!(!done(&["data: {}\n\n", "data: [DO"]));
        assert!(!done(&["data: [DONE]\n\n", "data: {\"x\":1}\n\n"]));
        assert!(!done(&[]));
    }

    #[test]
    fn queue_time_is_read_from_the_last_event() {
        let queue_ms = |text: &str| {
            let mut tail = Tail::default();
            tail.push(text.as_bytes());
            tail.queue_ms()
        };
        let last = "data: {\"choices\":[],\"queue_ms\":12.5,\"usage\":{}}\n\ndata: [DONE]\n\n";
        assert_eq!(queue_ms(&("x".repeat(1_000) + last)), Some(12.5));
        assert_eq!(queue_ms("data: {\"queue_ms\":0.0}\n\n"), Some(0.0));
        assert_eq!(queue_ms("data: [DONE]\n\n"), None);
    }

    #[test]
    fn record_hands_out_what_is_new() {
        let record = Record::default();
        let sample = Sample {
            at: Duration::ZERO,
            index: 0,
            total: Duration::from_millis(5),
            first_token: None,
            queue_ms: None,
            status: Some(200),
            served_by: None,
            is_ok: true,
        };
        record.push(sample.clone());
        let (first, next) = record.since(0);
        assert_eq!((first.len(), next), (1, 1));
        record.push(Sample { index: 1, ..sample });
        let (second, next) = record.since(next);
        assert_eq!((second[0].index, next), (1, 2));
    }
}
