//! One gRPC connection: counted, closed when it says nothing at first, and closable from outside.
//!
//! A stream whose reader has stopped cannot be ended within HTTP/2, since its end waits behind the
//! data that nobody takes; so the connection under it is closed. A client that connects and never
//! speaks would hold its place for ever; it has the handshake time to send its first byte.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Sleep, sleep},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::core::Core;

/// Accepted connections that wait for the server to take them.
const ACCEPTED_MAX: usize = 16;
/// Pause after a failed accept, which mostly means that no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Closes a connection from outside.
#[derive(Clone, Debug)]
pub struct ConnectionHandle(CancellationToken);

impl ConnectionHandle {
    pub fn close(&self) {
        self.0.cancel();
    }
}

#[derive(Debug)]
pub struct Connection {
    io: TcpStream,
    core: Arc<Core>,
    closed: CancellationToken,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Until the first byte has come.
    handshake: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(io: TcpStream, core: Arc<Core>, place: OwnedSemaphorePermit) -> Self {
        let closed = CancellationToken::new();
        core.metrics.connections.up();
        Self {
            io,
            closing: Box::pin(closed.clone().cancelled_owned()),
            closed,
            handshake: Some(Box::pin(sleep(core.config.timeouts.hello))),
            core,
            _place: place,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.core.metrics.connections.down();
    }
}

/// Accepts connections up to the limit; those above it are closed at once.
pub async fn accept(
    core: Arc<Core>,
    listener: TcpListener,
    taken: mpsc::Sender<io::Result<Connection>>,
) {
    let places = Arc::new(Semaphore::new(core.config.limits.connections));
    loop {
        let accepted = tokio::select! {
            () = core.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let io = match accepted {
            Ok((io, _)) => io,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            core.metrics.connections_refused.one();
            continue;
        };
        // Small messages that must leave at once; a socket that cannot say so works too.
        let _ = io.set_nodelay(true);
        if taken.send(Ok(Connection::new(io, Arc::clone(&core), place))).await.is_err() {
            return;
        }
    }
}

/// The way from [`accept`] to the server.
#[must_use]
pub fn channel() -> (mpsc::Sender<io::Result<Connection>>, mpsc::Receiver<io::Result<Connection>>) {
    mpsc::channel(ACCEPTED_MAX)
}

impl Connected for Connection {
    type ConnectInfo = ConnectionHandle;

    fn connect_info(&self) -> ConnectionHandle {
        ConnectionHandle(self.closed.clone())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_ready() {
            self.handshake = None;
        } else if let Some(handshake) = &mut self.handshake
            && handshake.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.closed.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.closed.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
