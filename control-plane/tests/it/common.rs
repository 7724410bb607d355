//! A control plane in this process on free ports, and clients of it.

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tidegate_control_plane::{
    config::Config,
    server::{ServeError, Server},
    text,
};
use tidegate_proto::v1::{
    self, FleetUpdate, ReportRequest, ReportResponse, WatchRequest,
    fleet_service_client::FleetServiceClient, report_service_client::ReportServiceClient,
    watch_request,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Status, Streaming,
    transport::{Channel, Endpoint},
};

pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// A folder of its own that goes with the test.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-cp-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        // Renamed into place, as tools do, so that no reader sees half a file.
        let half = self.0.join(format!("{name}.half"));
        std::fs::write(&half, content).unwrap();
        std::fs::rename(&half, &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Service `llm` with endpoints 127.0.0.1:8001 up, GPU 0 up, all on node-a.
pub(crate) fn fleet_yaml(endpoints: u16) -> String {
    let mut yaml = String::from("version: 1\nservices:\n- name: llm\n  endpoints:\n");
    for i in 0..endpoints {
        let address = format!("127.0.0.1:{}", 8_001 + i);
        yaml.push_str(&format!("  - {{address: \"{address}\", node: node-a, gpus: [{i}]}}\n"));
    }
    yaml
}

pub(crate) struct Plane {
    pub(crate) server: Server,
    pub(crate) folder: Folder,
}

impl Plane {
    /// Starts with this discovery file and `more` lines of configuration.
    pub(crate) async fn start(fleet: &str, more: &str) -> Self {
        let folder = Folder::new();
        folder.write("fleet.yaml", fleet);
        let server = Server::start(config(&folder.0, more)).await.unwrap();
        Self { server, folder }
    }

    /// One without waiting for reporters at its start.
    pub(crate) async fn quick(endpoints: u16, more: &str) -> Self {
        let more = format!("period_ms: 100\ntimeouts: {{warm_up_ms: 0}}\n{more}");
        Self::start(&fleet_yaml(endpoints), &more).await
    }

    pub(crate) async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.server.grpc))
            .unwrap()
            .connect()
            .await
            .unwrap()
    }

    pub(crate) async fn reporter(&self) -> Reporter {
        Reporter::open(self.channel().await).await.unwrap()
    }

    pub(crate) async fn proxy(&self, id: &str) -> Proxy {
        let mut proxy = Proxy::open(self.channel().await).await.unwrap();
        proxy.say(hello(id)).await;
        proxy
    }

    /// Path of the admin listener, answered.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        get(self.server.admin, path).await
    }

    pub(crate) async fn json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Runs in the background until it is stopped.
    pub(crate) fn run(self) -> (JoinHandle<Result<(), ServeError>>, Folder) {
        (tokio::spawn(self.server.run()), self.folder)
    }
}

pub(crate) fn config(base: &Path, more: &str) -> Config {
    let yaml = format!(
        "version: 1\nlisten: {{grpc: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}}\n\
         discovery: {{file: fleet.yaml, poll_ms: 50}}\n{more}"
    );
    Config::parse(&text::yaml(&yaml).unwrap(), base).unwrap()
}

pub(crate) async fn get(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    let mut io = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    io.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(DEADLINE, io.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.into())
}

/// A stream of reports.
pub(crate) struct Reporter {
    reports: mpsc::Sender<ReportRequest>,
    pub(crate) answers: Streaming<ReportResponse>,
}

impl Reporter {
    pub(crate) async fn open(channel: Channel) -> Result<Self, Status> {
        let (reports, sent) = mpsc::channel(16);
        let mut client = ReportServiceClient::new(channel);
        let answers = client.report(ReceiverStream::new(sent)).await?.into_inner();
        Ok(Self { reports, answers })
    }

    pub(crate) async fn send(&self, report: ReportRequest) {
        self.reports.send(report).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> Result<Option<ReportResponse>, Status> {
        timeout(DEADLINE, self.answers.message()).await.expect("an answer in time")
    }

    /// Sends a report and waits for its verdict.
    pub(crate) async fn report(&mut self, report: ReportRequest) -> ReportResponse {
        self.send(report).await;
        self.answer().await.unwrap().unwrap()
    }
}

/// A stream of updates, with feedback.
pub(crate) struct Proxy {
    messages: mpsc::Sender<WatchRequest>,
    pub(crate) updates: Streaming<FleetUpdate>,
}

impl Proxy {
    pub(crate) async fn open(channel: Channel) -> Result<Self, Status> {
        let (messages, sent) = mpsc::channel(16);
        let mut client = FleetServiceClient::new(channel).max_decoding_message_size(64 << 20);
        let updates = client.watch(ReceiverStream::new(sent)).await?.into_inner();
        Ok(Self { messages, updates })
    }

    pub(crate) async fn say(&mut self, message: watch_request::Message) {
        self.messages.send(WatchRequest { message: Some(message) }).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Result<Option<FleetUpdate>, Status> {
        timeout(DEADLINE, self.updates.message()).await.expect("an update in time")
    }

    /// Reads until an update says this about an endpoint.
    pub(crate) async fn until(&mut self, what: impl Fn(&v1::Endpoint) -> bool) -> v1::Endpoint {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            let update = self.next().await.unwrap().unwrap();
            let endpoints = update.services.into_iter().flat_map(|s| s.endpoints);
            if let Some(endpoint) = endpoints.into_iter().find(|e| what(e)) {
                return endpoint;
            }
        }
        panic!("no such update within {DEADLINE:?}");
    }
}

pub(crate) fn hello(id: &str) -> watch_request::Message {
    watch_request::Message::Hello(v1::Hello {
        proxy_id: id.into(),
        filter_version: "1.2.3".into(),
        config_state: v1::ConfigState::Ok.into(),
        ..v1::Hello::default()
    })
}

/// In flight and finished requests at 127.0.0.1:8001.
pub(crate) fn feedback(sequence: u64, in_flight: u32, ok: u32) -> watch_request::Message {
    let endpoint = v1::EndpointFeedback {
        endpoint: "127.0.0.1:8001".into(),
        in_flight,
        ended_ok: ok,
        ..v1::EndpointFeedback::default()
    };
    let service =
        v1::ServiceFeedback { service: "llm".into(), endpoints: vec![endpoint], arrivals: 10 };
    watch_request::Message::Feedback(v1::Feedback {
        sequence,
        window_ms: 500,
        services: vec![service],
        config_state: v1::ConfigState::Ok.into(),
        ..v1::Feedback::default()
    })
}

/// A healthy report of node-a with this many GPUs, each serving one endpoint.
pub(crate) fn report(sequence: u64, gpus: u16) -> ReportRequest {
    let gpu = |i: u16| v1::Gpu {
        uuid: format!("GPU-{i}"),
        index: i.into(),
        name: "NVIDIA A100-SXM4-80GB".into(),
        state: v1::GpuState::Ok.into(),
        utilization: Some(v1::Utilization { sm_percent: Some(40), ..Default::default() }),
        ..v1::Gpu::default()
    };
    ReportRequest {
        node: "node-a".into(),
        boot_id: "boot1".into(),
        sequence,
        interval_ms: 100,
        driver: Some(v1::DriverState {
            status: v1::DriverStatus::Ok.into(),
            ..v1::DriverState::default()
        }),
        gpus: (0..gpus).map(gpu).collect(),
        ..ReportRequest::default()
    }
}

/// The model server at 127.0.0.1:8001 on GPU-0, with what its engine says.
pub(crate) fn workload(engine: Option<(u32, u32)>) -> v1::Workload {
    v1::Workload {
        endpoint: "127.0.0.1:8001".into(),
        service: "llm".into(),
        gpu_uuids: vec!["GPU-0".into()],
        engine: engine.map(|(running, waiting)| v1::Engine {
            kind: "vllm".into(),
            running: Some(running),
            waiting: Some(waiting),
            ..v1::Engine::default()
        }),
        ..v1::Workload::default()
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + DEADLINE;
    while Instant::now() < end {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within {DEADLINE:?}");
}
