//! The listening side of a GPU: accepts, refuses while told to, and hands requests to [`crate::routes`].

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::fault::Fault;
use crate::gpu::Gpu;
use crate::routes;
use crate::socket::{Breaker, Socket};

/// Connections that wait to be accepted; a burst of a bench must fit.
const BACKLOG: u32 = 4_096;

pub(crate) fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("cannot listen on {address}"))?;
    socket.listen(BACKLOG).with_context(|| format!("cannot listen on {address}"))
}

/// Serves one GPU for ever; while the fault is [`Fault::Refuse`] the port is closed.
pub(crate) async fn gpu(gpu: Arc<Gpu>, first: TcpListener) -> anyhow::Result<()> {
    let mut faults = gpu.faults();
    let mut listener = first;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                tokio::spawn(connection(Arc::clone(&gpu), stream));
            }
            changed = faults.changed() => changed?,
        }
        if *faults.borrow_and_update() == Fault::Refuse {
            drop(listener);
            faults.wait_for(|fault| *fault != Fault::Refuse).await?;
            listener = bind(gpu.address())?;
        }
    }
}

async fn connection(gpu: Arc<Gpu>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut faults = gpu.faults();
    let breaker = Breaker::default();
    let of_requests = breaker.clone();
    let service = service_fn(move |request| {
        routes::inference(Arc::clone(&gpu), of_requests.clone(), request)
    });
    let socket = TokioIo::new(Socket::new(stream, breaker.clone()));
    let served = http1::Builder::new().serve_connection(socket, service);
    tokio::select! {
        // Broken connections are what this server is for; the ledger tells of them.
        _ = served => {}
        _ = faults.wait_for(|fault| *fault == Fault::Refuse) => breaker.set(),
    }
}

/// Serves control and ledger of all GPUs.
pub(crate) async fn control(gpus: Arc<[Arc<Gpu>]>, listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let gpus = Arc::clone(&gpus);
        let service = service_fn(move |request| routes::control(Arc::clone(&gpus), request));
        tokio::spawn(async move {
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
