//! A control plane within the test process.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use tidegate_proto::v1::{
    ReportRequest, ReportResponse, ReportVerdict,
    report_service_server::{ReportService, ReportServiceServer},
};
use tokio::{net::TcpListener, runtime::Runtime, sync::watch};
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::rig::Received;

/// A control plane that notes what it gets.
#[derive(Clone)]
pub(crate) struct ControlPlane {
    pub(crate) reports: Arc<Mutex<Vec<Received>>>,
    pub(crate) count: watch::Sender<usize>,
    wish_ms: Arc<AtomicU32>,
    frozen: watch::Sender<bool>,
}

type Answers = Pin<Box<dyn Stream<Item = Result<ReportResponse, Status>> + Send>>;

#[tonic::async_trait]
impl ReportService for ControlPlane {
    type ReportStream = Answers;

    async fn report(
        &self,
        request: Request<Streaming<ReportRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let own = self.clone();
        let answers = request.into_inner().then(move |report| {
            let own = own.clone();
            async move {
                own.thaw().await;
                own.take(report?)
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

impl ControlPlane {
    fn take(&self, report: ReportRequest) -> Result<ReportResponse, Status> {
        let sequence = report.sequence;
        let wish = self.wish_ms.load(Ordering::Relaxed);
        let mut reports = self.reports.lock().unwrap();
        reports.push(Received { at: Instant::now(), report });
        self.count.send_replace(reports.len());
        Ok(ReportResponse {
            sequence,
            verdict: ReportVerdict::Accepted.into(),
            reason: String::new(),
            interval_ms: (wish > 0).then_some(wish),
        })
    }

    /// Stops reading reports, with the connection open, or goes on.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }

    async fn thaw(&self) {
        let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
    }

    pub(crate) fn new() -> Self {
        Self {
            reports: Arc::default(),
            count: watch::Sender::new(0),
            wish_ms: Arc::default(),
            frozen: watch::Sender::new(false),
        }
    }

    pub(crate) fn wish_interval_ms(&self, ms: u32) {
        self.wish_ms.store(ms, Ordering::Relaxed);
    }

    /// Serves on threads of its own, so that stopping cuts every connection.
    pub(crate) fn serve(&self, address: SocketAddr) -> Server {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let service = ReportServiceServer::new(self.clone());
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let incoming = TcpListenerStream::new(listener);
            // The smallest windows, so that one that does not read is felt after some twenty reports.
            let mut server = tonic::transport::Server::builder()
                .initial_stream_window_size(65_535)
                .initial_connection_window_size(65_535);
            server.add_service(service).serve_with_incoming(incoming).await.unwrap();
        });
        Server { address, runtime: Some(runtime) }
    }
}

/// A running control plane.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Server {
    /// Ends it and all its connections.
    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
