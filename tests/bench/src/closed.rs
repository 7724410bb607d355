//! The loads of the `filter` bench, written on bare sockets: the client and the upstream share the machine's cores with
//! the proxy under test, so they must cost little. One request at a time a connection, HTTP/1.1 keep-alive, answers
//! with a `content-length`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// What a load phase found.
#[derive(Debug, Default)]
pub struct Load {
    pub latencies_us: Vec<f64>,
    pub wall: Duration,
}

/// Pace of each connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// The next request follows the answer at once: saturation.
    Full,
    /// Requests a second over all connections, evenly spaced; a late answer delays those behind it.
    PerSecond(f64),
}

/// Loads `proxy` for `span` over `connections` connections; any answer but 200 is an error.
pub async fn load(
    proxy: SocketAddr,
    connections: usize,
    pace: Pace,
    span: Duration,
) -> anyhow::Result<Load> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for index in 0..connections {
        tasks.spawn(async move {
            let mut connection = Connection::open(proxy).await?;
            let mut latencies_us = Vec::with_capacity(65_536);
            let mut turn = 0;
            loop {
                if let Pace::PerSecond(rate) = pace {
                    let at_s = (turn as f64 * connections as f64 + index as f64) / rate;
                    sleep_until(start + Duration::from_secs_f64(at_s)).await;
                    turn += 1;
                }
                let sent = Instant::now();
                if sent - start >= span {
                    return anyhow::Ok(latencies_us);
                }
                connection.exchange().await?;
                latencies_us.push(sent.elapsed().as_secs_f64() * 1e6);
            }
        });
    }
    let mut found = Load::default();
    while let Some(ended) = tasks.join_next().await {
        found.latencies_us.append(&mut ended??);
    }
    found.wall = start.elapsed();
    Ok(found)
}

/// About what a chat completion carries in headers, with an empty body: bodies cost every arm the same.
const REQUEST: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\nhost: llm.example\r\ncontent-type: application/json\r\n\
    user-agent: tidegate-bench\r\nauthorization: Bearer 0123456789abcdef0123456789abcdef\r\naccept: */*\r\n\
    content-length: 0\r\n\r\n";

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{\"choices\": []}";

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(proxy: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(proxy)
            .await
            .with_context(|| format!("cannot connect to {proxy}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4_096) })
    }

    async fn exchange(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(REQUEST).await?;
        self.buffer.clear();
        loop {
            ensure!(
                self.stream.read_buf(&mut self.buffer).await? > 0,
                "proxy closed the connection"
            );
            if let Some(whole) = message_length(&self.buffer)?
                && self.buffer.len() >= whole
            {
                break;
            }
        }
        if !self.buffer.starts_with(b"HTTP/1.1 200") {
            bail!("proxy answered {}", String::from_utf8_lossy(&self.buffer));
        }
        Ok(())
    }
}

/// The page that a reporter scrapes: an engine that is never busy.
const METRICS: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 147\r\n\r\n\
    # TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n\
    # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 0\n            \n";

/// An upstream that answers every request at once with the same 200; `/metrics` looks like an engine's.
pub async fn serve(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut buffer = Vec::with_capacity(4_096);
            while let Ok(read) = stream.read_buf(&mut buffer).await
                && read > 0
            {
                while let Ok(Some(whole)) = message_length(&buffer)
                    && buffer.len() >= whole
                {
                    let answer =
                        if buffer.starts_with(b"GET /metrics ") { METRICS } else { ANSWER };
                    buffer.drain(..whole);
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

/// Length of the message at the start of `buffer`, head and body; nothing while its head is not whole.
fn message_length(buffer: &[u8]) -> anyhow::Result<Option<usize>> {
    const NAME: &[u8] = b"content-length:";
    let Some(head) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    for line in buffer[..head].split(|byte| *byte == b'\n') {
        if line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME) {
            let length: usize = std::str::from_utf8(&line[NAME.len()..])?.trim().parse()?;
            return Ok(Some(head + 4 + length));
        }
    }
    // A request without a body needs no length; an answer in chunks is none of ours.
    ensure!(!buffer.starts_with(b"HTTP/"), "answer has no content-length");
    Ok(Some(head + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_ends_where_its_length_says() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Some(40)),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", Some(40)),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n", None),
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Some(27)),
            ("", None),
        ] {
            assert_eq!(message_length(text.as_bytes()).expect("well formed"), expected, "{text:?}");
        }
        assert!(message_length(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(message_length(b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n").is_err());
    }

    #[test]
    fn fixed_answers_are_as_long_as_they_say() {
        for answer in [ANSWER, METRICS] {
            assert_eq!(message_length(answer).expect("well formed"), Some(answer.len()));
        }
    }

    #[tokio::test]
    async fn every_request_is_answered_in_both_paces() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let upstream = listener.local_addr().expect("bound");
        tokio::spawn(serve(listener));
        let full = load(upstream, 2, Pace::Full, Duration::from_millis(50)).await.expect("answers");
        assert!(full.latencies_us.len() > 10);
        // 200 a second for 100 ms: 20, of which the last may fall on the edge.
        let paced = load(upstream, 2, Pace::PerSecond(200.0), Duration::from_millis(100))
            .await
            .expect("answers");
        assert!((15..=20).contains(&paced.latencies_us.len()), "{}", paced.latencies_us.len());
    }
}
