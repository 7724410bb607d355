//! A running control plane: its listeners and tasks, and how they stop.
//!
//! ```text
//! discovery ──▶ core ◀── ingest (gRPC)      admin (HTTP) ──▶ core
//!                │ publisher: step each period and after events
//!                ▼
//!              snapshots ──▶ fleet (gRPC), one place per stream
//! ```
//! A stop tells health checks first, ends every stream in good order, and gives up waiting for clients
//! after `shutdown_ms`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tidegate_proto::v1::{
    fleet_service_server::FleetServiceServer, report_service_server::ReportServiceServer,
};
use tokio::{net::TcpListener, task::JoinHandle, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server as Grpc;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    admin, config::Config, connection, core::Core, discovery::file::FileDiscovery, fleet::Fleet,
    ingest::Ingest, publisher,
};

/// Bytes of request headers that a client may send.
const HEADER_BYTES_MAX: u32 = 16_384;
/// Streams that a client may open and reset before they are served; more closes the connection.
const RESETS_PENDING_MAX: usize = 20;
/// How often readiness is looked at.
const HEALTH_POLL: Duration = Duration::from_millis(100);

/// Names that gRPC health answers for; the empty one is the whole process.
const HEALTH_NAMES: [&str; 4] =
    ["", "readiness", "tidegate.v1.ReportService", "tidegate.v1.FleetService"];

/// A control plane that runs in this process.
#[derive(Debug)]
pub struct Server {
    pub core: Arc<Core>,
    pub grpc: SocketAddr,
    pub admin: SocketAddr,
    grpc_task: JoinHandle<Result<(), tonic::transport::Error>>,
    admin_task: JoinHandle<std::io::Result<()>>,
}

/// Why a control plane does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("listen.{listener}: {address}: {error}")]
    Listen { listener: &'static str, address: SocketAddr, error: std::io::Error },
    #[error("gRPC server: {0}")]
    Grpc(#[from] tonic::transport::Error),
    #[error("admin server: {0}")]
    Admin(std::io::Error),
    #[error("a task ended: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Server {
    /// Binds the listeners and starts everything.
    ///
    /// # Errors
    /// An address cannot be listened on.
    pub async fn start(config: Config) -> Result<Self, ServeError> {
        let grpc = listen("grpc", config.grpc).await?;
        let admin = listen("admin", config.admin).await?;
        let (grpc_address, admin_address) = (address_of(&grpc)?, address_of(&admin)?);
        let core = Core::new(config);
        let mut discovery = FileDiscovery::new(&core.config.discovery.file, &core.config.limits);
        let directory = discovery.look();
        core.discovered(discovery.status(), directory);
        tokio::spawn(discover(Arc::clone(&core), discovery));
        tokio::spawn(publisher::run(Arc::clone(&core)));
        let grpc_task = tokio::spawn(serve_grpc(Arc::clone(&core), grpc));
        let admin_task = tokio::spawn(admin::serve(Arc::clone(&core), admin));
        tracing::info!(
            grpc = %grpc_address,
            admin = %admin_address,
            instance = format!("{:016x}", core.instance),
            "control plane runs"
        );
        Ok(Self { core, grpc: grpc_address, admin: admin_address, grpc_task, admin_task })
    }

    /// Runs until the process is told to stop, or a listener fails.
    ///
    /// # Errors
    /// A listener failed.
    pub async fn run(self) -> Result<(), ServeError> {
        let Self { core, mut grpc_task, mut admin_task, .. } = self;
        tokio::select! {
            () = core.stop.cancelled() => {}
            ended = &mut grpc_task => return ended?.map_err(ServeError::Grpc),
            ended = &mut admin_task => return ended?.map_err(ServeError::Admin),
        }
        let wait = core.config.timeouts.shutdown;
        let both = async { (grpc_task.await, admin_task.await) };
        if timeout(wait, both).await.is_err() {
            tracing::info!("clients still connected; closed");
        }
        Ok(())
    }

    /// Tells everything to stop; [`Server::run`] returns soon after.
    pub fn stop(&self) {
        self.core.stop.cancel();
    }
}

async fn listen(listener: &'static str, address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| ServeError::Listen { listener, address, error })
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, ServeError> {
    listener.local_addr().map_err(ServeError::Admin)
}

/// Looks at the discovery file again and again.
async fn discover(core: Arc<Core>, mut discovery: FileDiscovery) {
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = tokio::time::sleep(core.config.discovery.poll) => {}
        }
        let looked = tokio::task::spawn_blocking(move || {
            let directory = discovery.look();
            (discovery, directory)
        });
        let Ok((back, directory)) = looked.await else { return };
        discovery = back;
        core.discovered(discovery.status(), directory);
    }
}

async fn serve_grpc(core: Arc<Core>, listener: TcpListener) -> Result<(), tonic::transport::Error> {
    let (limits, timeouts) = (core.config.limits.clone(), core.config.timeouts.clone());
    let (health, health_service) = tonic_health::server::health_reporter();
    tokio::spawn(report_health(Arc::clone(&core), health));
    let reports = ReportServiceServer::new(Ingest { core: Arc::clone(&core) })
        .max_decoding_message_size(limits.message_bytes);
    let watches = FleetServiceServer::new(Fleet { core: Arc::clone(&core) })
        .max_decoding_message_size(limits.message_bytes)
        // What is sent is bounded by the limits of discovery.
        .max_encoding_message_size(usize::MAX);
    let (accepted, incoming) = connection::channel();
    tokio::spawn(connection::accept(Arc::clone(&core), listener, accepted));
    Grpc::builder()
        .max_concurrent_streams(limits.streams_per_connection)
        .http2_keepalive_interval(Some(timeouts.keepalive_interval))
        .http2_keepalive_timeout(Some(timeouts.keepalive_timeout))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(RESETS_PENDING_MAX))
        .max_connection_age(timeouts.stream_age)
        // Streams end by their own age, spread; this only catches those that do not.
        .max_connection_age_grace(timeouts.stream_age.saturating_mul(2))
        .add_service(health_service)
        .add_service(reports)
        .add_service(watches)
        .serve_with_incoming_shutdown(
            ReceiverStream::new(incoming),
            core.stop.clone().cancelled_owned(),
        )
        .await
}

/// Keeps the gRPC health service in step with readiness.
async fn report_health(core: Arc<Core>, health: HealthReporter) {
    health.set_service_status("liveness", ServingStatus::Serving).await;
    let mut was = None;
    loop {
        let is_ready = core.not_ready().is_empty();
        if was != Some(is_ready) {
            let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            for name in HEALTH_NAMES {
                health.set_service_status(name, status).await;
            }
            was = Some(is_ready);
        }
        if core.stop.is_cancelled() {
            return;
        }
        tokio::select! {
            () = core.stop.cancelled() => {}
            () = tokio::time::sleep(HEALTH_POLL) => {}
        }
    }
}
