//! The shipped binary over the fake driver, against a control plane within the test.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tidegate_proto::v1::{Gpu, GpuState, ReportRequest};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::control_plane::{ControlPlane, Server};

/// How long a condition may take on a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

const REPORTER: &str = env!("CARGO_BIN_EXE_tidegate-gpu-reporter");

/// A report and when it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) at: Instant,
    pub(crate) report: ReportRequest,
}

impl Received {
    /// The GPU of this name; one that is not reported has nothing known about it.
    pub(crate) fn gpu(&self, uuid: &str) -> &Gpu {
        static NOBODY: LazyLock<Gpu> = LazyLock::new(Gpu::default);
        self.report.gpus.iter().find(|gpu| gpu.uuid == uuid).unwrap_or(&NOBODY)
    }

    pub(crate) fn states(&self) -> BTreeMap<&str, GpuState> {
        self.report.gpus.iter().map(|gpu| (gpu.uuid.as_str(), gpu.state())).collect()
    }
}

/// One reporter under test.
pub(crate) struct Rig {
    pub(crate) plane: ControlPlane,
    pub(crate) server: Server,
    pub(crate) listen: SocketAddr,
    pub(crate) folder: PathBuf,
    child: Child,
    scenario: Value,
    mark: usize,
}

impl Rig {
    /// Starts with 250 ms periods, so that tests are quick.
    pub(crate) async fn start(name: &str, scenario: Value, more: &[&str]) -> Self {
        let plane = ControlPlane::new();
        let server = plane.serve(SocketAddr::from(([127, 0, 0, 1], 0)));
        let folder = folder(name);
        let listen = free_address();
        write(&folder.join("scenario.json"), &scenario.to_string());
        let url = format!("http://{}", server.address);
        let listen_text = listen.to_string();
        let mut args = vec!["--control-plane", &url, "--listen", &listen_text, "--node", "node-a"];
        if !more.contains(&"--interval-ms") {
            args.extend(["--interval-ms", "250"]);
        }
        args.extend(more);
        let child = command(&folder, &args)
            .stderr(File::create(folder.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Self { plane, server, listen, folder, child, scenario, mark: 0 }
    }

    pub(crate) fn all(&self) -> Vec<Received> {
        self.plane.reports.lock().unwrap().clone()
    }

    /// Reports until now no longer count for [`Rig::until`].
    pub(crate) fn forget(&mut self) {
        self.mark = self.all().len();
    }

    /// Changes the scenario in place and forgets the reports so far.
    pub(crate) fn change(&mut self, act: impl FnOnce(&mut Value)) -> Instant {
        act(&mut self.scenario);
        self.forget();
        let now = Instant::now();
        write(&self.folder.join("scenario.json"), &self.scenario.to_string());
        now
    }

    /// The first report since the last change that fulfils `condition`.
    pub(crate) async fn until(
        &self,
        what: &str,
        condition: impl Fn(&Received) -> bool,
    ) -> Received {
        let mut count = self.plane.count.subscribe();
        let mut seen = self.mark;
        let search = async {
            loop {
                let all = self.all();
                if let Some(found) = all.iter().skip(seen).find(|r| condition(r)) {
                    return found.clone();
                }
                seen = seen.max(all.len());
                count.wait_for(|count| *count > seen).await.unwrap();
            }
        };
        match tokio::time::timeout(DEADLINE, search).await {
            Ok(found) => found,
            Err(_) => {
                let last = self.all().last().cloned();
                let log = fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
                panic!("{what}: not within {DEADLINE:?}; last report {last:#?}\nlog:\n{log}")
            }
        }
    }

    pub(crate) async fn until_state(&self, uuid: &str, state: GpuState) -> Received {
        let has = |r: &Received| r.states().get(uuid) == Some(&state);
        self.until(&format!("{uuid} {state:?}"), has).await
    }

    /// Status and body of one of the reporter's own pages.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        get(self.listen, path).await
    }

    /// A number from `/metrics`; absent is absent.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let (_, page) = self.get("/metrics").await;
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn terminate(&mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        let sent = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, start.elapsed());
            }
            assert!(start.elapsed() < DEADLINE, "still running");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `condition` gives something.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut condition: impl FnMut() -> F,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let connect = || async { TcpStream::connect(address).await.ok() };
    let mut stream = eventually("own page", connect).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// A server with one page, which a test can change; counts how often it was asked.
pub(crate) struct PageServer {
    pub(crate) address: SocketAddr,
    pub(crate) page: Arc<Mutex<String>>,
    pub(crate) asked: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl PageServer {
    pub(crate) async fn start(page: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (page, asked) = (Arc::new(Mutex::new(page.to_owned())), Arc::new(AtomicU32::new(0)));
        let (shown, counted) = (Arc::clone(&page), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                if stream.read(&mut request).await.unwrap_or(0) == 0 {
                    continue;
                }
                counted.fetch_add(1, Ordering::Relaxed);
                let body = shown.lock().unwrap().clone();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all((head + &body).as_bytes()).await;
            }
        });
        Self { address, page, asked, task }
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs `--once` to its end.
pub(crate) fn once(name: &str, scenario: &Value, more: &[&str]) -> Output {
    let folder = folder(name);
    write(&folder.join("scenario.json"), &scenario.to_string());
    command(&folder, &[&["--once"], more].concat()).stderr(Stdio::piped()).output().unwrap()
}

/// The sample of `--once` as JSON.
pub(crate) fn once_json(name: &str, scenario: &Value, more: &[&str]) -> Value {
    let output = once(name, scenario, &[&["--output", "json"], more].concat());
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?} {log}"))
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(REPORTER);
    command
        .env_clear()
        .env("TIDEGATE_FAKE_NVML", folder.join("scenario.json"))
        .args(["--nvml-lib", fake_nvml().to_str().unwrap()])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// The fake driver that cargo built beside this test.
pub(crate) fn fake_nvml() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    let places = [deps, deps.parent().unwrap()].map(|d| d.join("libtidegate_fake_nvml.so"));
    let found = places.iter().find(|path| path.exists());
    found
        .cloned()
        .unwrap_or_else(|| panic!("no fake driver at {places:?}: build tidegate-fake-nvml"))
}

/// An empty folder for one test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reporter").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Writes whole or not at all.
pub(crate) fn write(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

pub(crate) fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// `count` healthy GPUs named `GPU-0`, `GPU-1`, ….
pub(crate) fn healthy(count: usize) -> Value {
    let gpus: Vec<Value> = (0..count).map(|i| json!({"uuid": format!("GPU-{i}")})).collect();
    json!({"driver": {}, "gpus": gpus, "events": []})
}

/// The age that a group of figures must not exceed for its GPU to count as fresh.
pub(crate) fn assert_fresh(received: &Received, uuids: &[&str], age_ms_max: u32) {
    for uuid in uuids {
        let group = received.gpu(uuid).utilization;
        let age = group.map(|g| g.age_ms);
        assert!(age.is_some_and(|age| age <= age_ms_max), "{uuid}: {age:?}");
    }
}
