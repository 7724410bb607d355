//! An HTTP/1.1 client: pooled requests, streams with the time of each piece, and raw bytes for
//! requests that no decent client would send.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// No test waits longer for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body came to its proper end.
    pub is_whole: bool,
    /// From sending to the first byte of the body.
    pub first_byte: Option<Duration>,
    /// From sending to the end.
    pub elapsed: Duration,
    /// When each piece of the body came, and its length.
    pub pieces: Vec<(Duration, usize)>,
}

impl Reply {
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// # Errors
    /// The body is no JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("no JSON: {}", self.text()))
    }

    /// A header's value, empty when absent.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Which model server answered.
    #[must_use]
    pub fn served_by(&self) -> Option<SocketAddr> {
        self.header("x-served-by").parse().ok()
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    #[must_use]
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool = Pool::builder(TokioExecutor::new()).build(connector);
        Self { pool }
    }

    /// A client that speaks HTTP/2 from the start.
    #[must_use]
    pub fn http2() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let pool = Pool::builder(TokioExecutor::new()).http2_only(true).build(connector);
        Self { pool }
    }

    /// # Errors
    /// No answer came.
    pub async fn get(&self, url: &str) -> anyhow::Result<Reply> {
        self.send(Request::get(url).body(Full::default())?).await
    }

    /// # Errors
    /// No answer came.
    pub async fn post(&self, url: &str, body: impl Into<Bytes>) -> anyhow::Result<Reply> {
        self.send(Request::post(url).body(Full::new(body.into()))?).await
    }

    /// A chat request whose work is `work_ms` at speed 1.
    ///
    /// # Errors
    /// No answer came.
    pub async fn chat(&self, to: SocketAddr, work_ms: f64) -> anyhow::Result<Reply> {
        self.send(chat(to, work_ms, Form::Plain)?).await
    }

    /// The same as a stream of server-sent events.
    ///
    /// # Errors
    /// No answer came.
    pub async fn chat_stream(&self, to: SocketAddr, work_ms: f64) -> anyhow::Result<Reply> {
        self.send(chat(to, work_ms, Form::Stream)?).await
    }

    /// Sends and reads the answer to its end.
    ///
    /// # Errors
    /// No answer came; a body that breaks off is no error but a [`Reply`] that is not whole.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Reply> {
        let sent = Instant::now();
        let what = format!("{} {}", request.method(), request.uri());
        let answer = timeout(PATIENCE, self.pool.request(request));
        let answer = answer.await.with_context(|| format!("{what}: no answer in {PATIENCE:?}"))?;
        let (parts, body) = answer.with_context(|| what.clone())?.into_parts();
        let read = timeout(PATIENCE, read(sent, body)).await;
        let (body, is_whole, pieces) =
            read.with_context(|| format!("{what}: no end in {PATIENCE:?}"))?;
        Ok(Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
            is_whole,
            first_byte: pieces.first().map(|(at, _)| *at),
            elapsed: sent.elapsed(),
            pieces,
        })
    }
}

async fn read(sent: Instant, mut body: Incoming) -> (Bytes, bool, Vec<(Duration, usize)>) {
    let (mut bytes, mut pieces) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (bytes.into(), false, pieces) };
        if let Ok(data) = frame.into_data() {
            pieces.push((sent.elapsed(), data.len()));
            bytes.extend_from_slice(&data);
        }
    }
    (bytes.into(), true, pieces)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    Stream,
}

/// A chat request whose work is `work_ms` at speed 1.
///
/// # Errors
/// The address is no URL.
pub fn chat(to: SocketAddr, work_ms: f64, form: Form) -> anyhow::Result<Request<Full<Bytes>>> {
    let body = json!({"model": "tide-1b", "max_tokens": 16, "stream": form == Form::Stream,
        "messages": [{"role": "user", "content": "How high is the tide?"}]});
    let request = Request::post(format!("http://{to}/v1/chat/completions"))
        .header("content-type", "application/json")
        .header("x-work-ms", work_ms.to_string())
        .body(Full::new(body.to_string().into()))?;
    Ok(request)
}

/// Sends bytes as they are and reads until the other side closes: ask for `connection: close`.
///
/// # Errors
/// The connection fails, or stays open too long.
pub async fn raw(to: SocketAddr, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut answer)).await.context("no end of the answer")??;
    Ok(answer)
}
