//! A control plane that says whatever a test wants: good updates, garbage, or nothing.
//!
//! It speaks gRPC by hand over HTTP/2, since a proper server could not send a broken frame.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tidegate_proto::v1::{
    Endpoint, FleetUpdate, HardState, Hello, Service, WatchRequest, watch_request,
};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::BroadcastStream;

use crate::ports;

/// Messages that a slow stream may lag behind.
const LAG_MAX: usize = 1_024;
/// How often a held update is said again.
const PERIOD: Duration = Duration::from_millis(500);

/// Ends with its handle.
#[derive(Debug)]
pub struct FakeControlPlane {
    pub grpc: SocketAddr,
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug)]
struct Shared {
    /// What is true: said at the start of each stream and again each period.
    held: Mutex<Option<FleetUpdate>>,
    said: broadcast::Sender<Bytes>,
    heard: Mutex<Vec<WatchRequest>>,
    opened: AtomicUsize,
    open: AtomicUsize,
}

impl FakeControlPlane {
    /// # Errors
    /// No port.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_at(ports::free()).await
    }

    /// # Errors
    /// The port is taken.
    pub async fn start_at(grpc: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(grpc).await?;
        let shared = Arc::new(Shared {
            held: Mutex::default(),
            said: broadcast::channel(LAG_MAX).0,
            heard: Mutex::default(),
            opened: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        let tasks = [
            tokio::spawn(serve(listener, Arc::clone(&shared))),
            tokio::spawn(repeat(Arc::clone(&shared))),
        ];
        Ok(Self { grpc, shared, tasks })
    }

    /// Holds this as the truth: says it now, to each new stream, and again each period with the next
    /// epoch, so that the proxies' data stays fresh.
    pub fn hold(&self, update: FleetUpdate) {
        self.say(&update);
        *lock(&self.shared.held) = Some(update);
    }

    /// Says nothing more by itself; gives what was held, with its latest epoch.
    #[must_use]
    pub fn release(&self) -> Option<FleetUpdate> {
        lock(&self.shared.held).take()
    }

    /// Says this to all open streams.
    pub fn say(&self, update: &FleetUpdate) {
        self.say_message(&update.encode_to_vec());
    }

    /// Says any bytes as one gRPC message.
    pub fn say_message(&self, payload: &[u8]) {
        self.say_bytes(framed(payload));
    }

    /// Says any bytes where a gRPC frame belongs.
    pub fn say_bytes(&self, bytes: Bytes) {
        // No open stream is no error here.
        let _ = self.shared.said.send(bytes);
    }

    /// Streams open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Streams opened since the start.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.shared.opened.load(Ordering::SeqCst)
    }

    /// What the proxies said.
    #[must_use]
    pub fn heard(&self) -> Vec<WatchRequest> {
        lock(&self.shared.heard).clone()
    }

    #[must_use]
    pub fn hellos(&self) -> Vec<Hello> {
        let all = self.heard().into_iter();
        all.filter_map(|request| match request.message {
            Some(watch_request::Message::Hello(hello)) => Some(hello),
            _ => None,
        })
        .collect()
    }
}

impl Drop for FakeControlPlane {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A full update of one service: these endpoints, equally strong, idle and healthy.
#[must_use]
pub fn full_update(epoch: u64, service: &str, endpoints: &[SocketAddr]) -> FleetUpdate {
    let endpoints = endpoints
        .iter()
        .map(|address| Endpoint {
            address: address.to_string(),
            weight: 1_000,
            type_weight: 1_000,
            in_flight: Some(0),
            slots: Some(8),
            gate_pm: 1_000,
            age_ms: Some(0),
            hard: HardState::Up.into(),
            ..Endpoint::default()
        })
        .collect();
    FleetUpdate {
        epoch,
        instance: 7,
        period_ms: 500,
        proxies_live: 1,
        full: true,
        services: vec![Service { name: service.to_owned(), endpoints, ..Service::default() }],
        services_removed: Vec::new(),
    }
}

/// A gRPC frame: not compressed, length, payload.
fn framed(payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + payload.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    bytes.put_slice(payload);
    bytes.freeze()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn repeat(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(PERIOD);
    loop {
        ticks.tick().await;
        if let Some(update) = lock(&shared.held).as_mut() {
            update.epoch += 1;
            // No open stream is no error here.
            let _ = shared.said.send(framed(&update.encode_to_vec()));
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| watch(Arc::clone(&shared), request));
            let http2 = http2::Builder::new(TokioExecutor::new());
            // A proxy that leaves is no error here.
            let _ = http2.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Frames =
    std::pin::Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

async fn watch(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<StreamBody<Frames>>, Infallible> {
    let open = Open::new(&shared);
    let said = BroadcastStream::new(shared.said.subscribe());
    let held = lock(&shared.held).clone();
    let greeting = held.map(|update| framed(&update.encode_to_vec()));
    tokio::spawn(listen(shared, request.into_body()));
    let said = said.filter_map(|bytes| std::future::ready(bytes.ok()));
    let frames = futures::stream::iter(greeting).chain(said).map(move |bytes| {
        // Counted as open for as long as the stream lives.
        let _ = &open;
        Ok(Frame::data(bytes))
    });
    let mut response = Response::new(StreamBody::new(Box::pin(frames) as Frames));
    let kind = http::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.opened.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn listen(shared: Arc<Shared>, mut body: Incoming) {
    let mut bytes = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        bytes.extend_from_slice(&data);
        while let Some(message) = next_message(&mut bytes) {
            if let Ok(request) = WatchRequest::decode(message) {
                lock(&shared.heard).push(request);
            }
        }
    }
}

fn next_message(bytes: &mut BytesMut) -> Option<BytesMut> {
    let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
    if bytes.len() < 5 + length {
        return None;
    }
    bytes.advance(5);
    Some(bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_at_their_length() {
        let mut bytes = BytesMut::from(&framed(b"abc")[..]);
        bytes.extend_from_slice(&framed(b"de")[..6]);
        assert_eq!(next_message(&mut bytes).as_deref(), Some(&b"abc"[..]));
        assert_eq!(next_message(&mut bytes), None, "one byte is missing");
        bytes.extend_from_slice(b"e");
        assert_eq!(next_message(&mut bytes).as_deref(), Some(&b"de"[..]));
    }
}
