//! One task per model server: get the page, read it, tell the figures.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tidegate_reporter_config::{EngineKind, Workload};
use tokio::task::JoinHandle;

use super::{Engines, reading, text::Figures, window::Window};
use crate::{sampler::jittered, shared::Shared};

/// A server that nobody asked about is read again after so many periods.
const UNASKED_PERIODS: f64 = 1.5;
/// Most bytes of a page that are read.
const BODY_BYTES_MAX: usize = 1 << 20;

type HttpClient = Client<HttpConnector, Empty<Bytes>>;

/// How to scrape.
#[derive(Clone)]
pub struct ScraperSettings {
    pub shared: Arc<Shared>,
    pub timeout: Duration,
}

/// The tasks, one for each model server that has a metrics URL.
pub struct Scraper {
    settings: ScraperSettings,
    engines: Engines,
    client: HttpClient,
    tasks: BTreeMap<SocketAddr, (Workload, JoinHandle<()>)>,
    failures: Arc<AtomicU64>,
}

impl Scraper {
    #[must_use]
    pub fn new(settings: ScraperSettings, engines: Engines) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(settings.timeout));
        connector.set_nodelay(true);
        Self {
            settings,
            engines,
            client: Client::builder(TokioExecutor::new())
                .pool_idle_timeout(Duration::from_secs(30))
                .pool_max_idle_per_host(1)
                .build(connector),
            tasks: BTreeMap::new(),
            failures: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Scrapes that gave nothing, since start.
    #[must_use]
    pub fn failures(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.failures)
    }

    /// Starts and ends tasks so that they match `workloads`.
    pub fn follow(&mut self, workloads: &[Workload]) {
        let engines = &self.engines;
        self.tasks.retain(|endpoint, (running, task)| {
            let keep = workloads.iter().any(|w| w == running);
            if !keep {
                task.abort();
                engines.forget(*endpoint);
            }
            keep
        });
        for workload in workloads {
            if workload.metrics_url.is_some() && !self.tasks.contains_key(&workload.endpoint) {
                let task = tokio::spawn(run(
                    self.settings.clone(),
                    self.client.clone(),
                    self.engines.clone(),
                    workload.clone(),
                    Arc::clone(&self.failures),
                ));
                self.tasks.insert(workload.endpoint, (workload.clone(), task));
            }
        }
    }
}

async fn run(
    settings: ScraperSettings,
    client: HttpClient,
    engines: Engines,
    workload: Workload,
    failures: Arc<AtomicU64>,
) {
    let Some(url) = workload.metrics_url.as_ref() else { return };
    let mut rounds = engines.rounds(workload.endpoint);
    let mut window = Window::default();
    let mut was_good = true;
    loop {
        let started = Instant::now();
        let round = *rounds.borrow_and_update();
        let got =
            tokio::time::timeout(settings.timeout, page(&client, url.as_str(), workload.engine))
                .await;
        let problem = match got {
            Ok(Ok(figures)) => {
                let now = Instant::now();
                engines.set(workload.endpoint, now, reading(&figures, &mut window, &workload, now));
                None
            }
            Ok(Err(problem)) => Some(problem),
            Err(_) => Some(format!("no answer within {} ms", settings.timeout.as_millis())),
        };
        if let Some(problem) = &problem {
            failures.fetch_add(1, Ordering::Relaxed);
            if was_good {
                tracing::warn!(url = url.as_str(), %problem, "model server metrics not read");
            }
        }
        was_good = problem.is_none();
        engines.done(workload.endpoint, round);
        // Without reports nobody asks: then a period of its own.
        let period = jittered(settings.shared.interval()).mul_f64(UNASKED_PERIODS);
        let rest = period.saturating_sub(started.elapsed());
        let _ = tokio::time::timeout(rest, rounds.changed()).await;
    }
}

async fn page(
    client: &HttpClient,
    url: &str,
    engine: Option<EngineKind>,
) -> Result<Figures, String> {
    let uri = url.parse().map_err(|e| format!("{e}"))?;
    let response = client.get(uri).await.map_err(|e| format!("{e}"))?;
    if !response.status().is_success() {
        return Err(format!("status {}", response.status().as_u16()));
    }
    let mut body = response.into_body();
    let mut figures = Figures::expecting(engine);
    let mut bytes = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| format!("{e}"))?;
        if let Some(data) = frame.data_ref() {
            bytes += data.len();
            if bytes > BODY_BYTES_MAX {
                return Err(format!("more than {BODY_BYTES_MAX} bytes"));
            }
            figures.feed(data);
        }
    }
    figures.finish();
    match figures.kind() {
        Some(_) => Ok(figures),
        None => Err("no known metric on the page".into()),
    }
}
