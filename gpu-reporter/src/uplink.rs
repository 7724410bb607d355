//! The stream to the control plane: the newest report, never a queue.
//!
//! A report is made when the connection takes it, so its ages are those of that moment, and a slow
//! connection costs reports in between, not memory; those are counted as conflated. A round of sampling
//! or an event makes one due; without either, one is due after the period and a fifth, so that a hung
//! driver is reported on time. Reports keep 100 ms distance, which bounds a storm of events to 10
//! reports a second. Reconnect with full jitter, 0.1–15 s.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use rand::RngExt;
use tidegate_proto::v1::{
    ReportRequest, ReportResponse, ReportVerdict, report_service_client::ReportServiceClient,
};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt, wrappers::WatchStream};
use tonic::transport::{Channel, Endpoint};

use crate::{
    engine::Engines,
    host::HostReading,
    sample::Snapshot,
    shared::Shared,
    wire::{self, Envelope},
    workload::WorkloadList,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Bounds of the waits between attempts; the wait is drawn evenly from zero to a bound that doubles.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// A stream that lived this long starts the waits from the first bound again.
const GOOD_STREAM: Duration = Duration::from_secs(10);
/// A report waits so long at most for the model servers' newest figures.
const SCRAPE_WAIT: Duration = Duration::from_millis(50);
/// Least time between two reports.
const SPACING: Duration = Duration::from_millis(100);

/// Everything a report is made of.
#[derive(Clone)]
pub struct Sources {
    pub node: String,
    pub shared: Arc<Shared>,
    pub workloads: WorkloadList,
    pub engines: Engines,
    pub host: HostReading,
}

impl Sources {
    /// All that is known at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = Instant::now();
        let gpus = self.shared.board.gpus(now, self.shared.age_limits());
        let period = self.shared.interval();
        Snapshot {
            node: self.node.clone(),
            driver: self.shared.board.driver(),
            workloads: self.workloads.view(&gpus, &self.engines, now, period),
            gpus,
            host: self.host.at(now),
        }
    }
}

/// What the uplink did, for `/metrics` and `/readyz`.
#[derive(Debug, Default)]
pub struct UplinkCounts {
    pub connected: AtomicBool,
    pub connects: AtomicU64,
    pub failures: AtomicU64,
    pub reports: AtomicU64,
    pub conflated: AtomicU64,
    pub refused: AtomicU64,
}

/// One reporter's sending end.
pub struct Uplink {
    sources: Sources,
    part: String,
    boot_id: String,
    counts: Arc<UplinkCounts>,
    sequence: Arc<AtomicU64>,
    due: watch::Sender<Due>,
    /// Number of the due report that the connection took last.
    taken: Arc<AtomicU64>,
}

/// Which report is due: counts up; the last one says goodbye.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Due {
    number: u64,
    leaving: bool,
}

impl Uplink {
    #[must_use]
    pub fn new(sources: Sources, part: String, counts: Arc<UplinkCounts>) -> Self {
        let boot_id = format!("{:032x}", rand::rng().random::<u128>());
        let due = watch::Sender::new(Due::default());
        Self {
            sources,
            part,
            boot_id,
            counts,
            sequence: Arc::default(),
            due,
            taken: Arc::default(),
        }
    }

    /// Sends until `stop` turns true; then says goodbye and returns within a second.
    pub async fn run(self, url: &str, mut stop: watch::Receiver<bool>) {
        let endpoint = match Endpoint::from_shared(url.to_owned()) {
            Ok(endpoint) => endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                .tcp_keepalive(Some(KEEPALIVE))
                .http2_keep_alive_interval(KEEPALIVE)
                .keep_alive_timeout(KEEPALIVE)
                .keep_alive_while_idle(true),
            Err(error) => {
                tracing::error!(%error, url, "control plane address");
                return;
            }
        };
        let mut bound = RETRY_FIRST;
        loop {
            let started = Instant::now();
            let ended = tokio::select! {
                ended = self.stream(&endpoint, stop.clone()) => ended,
                () = stopped_without_stream(&self.counts, stop.clone()) => return,
            };
            self.counts.connected.store(false, Ordering::Relaxed);
            match ended {
                Ok(Ended::Left) => return,
                Ok(Ended::Closed) => tracing::info!("control plane ended the stream"),
                Err(error) => {
                    self.counts.failures.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, url, "control plane not reached");
                }
            }
            if started.elapsed() >= GOOD_STREAM {
                bound = RETRY_FIRST;
            }
            let wait = full_jitter(bound);
            bound = (bound * 2).min(RETRY_MAX);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn stream(
        &self,
        endpoint: &Endpoint,
        stop: watch::Receiver<bool>,
    ) -> Result<Ended, tonic::Status> {
        let channel: Channel = endpoint
            .connect()
            .await
            .map_err(|error| tonic::Status::unavailable(error_chain(&error)))?;
        let mut client = ReportServiceClient::new(channel);
        self.due.send_modify(|due| due.number += 1);
        let opening = client.report(self.reports());
        let response = tokio::time::timeout(CONNECT_TIMEOUT, opening)
            .await
            .map_err(|_| tonic::Status::deadline_exceeded("no answer to the stream"))??;
        self.counts.connected.store(true, Ordering::Relaxed);
        self.counts.connects.fetch_add(1, Ordering::Relaxed);
        tracing::info!("control plane takes reports");
        let mut answers = response.into_inner();
        let pace = self.pace(stop);
        tokio::pin!(pace);
        let mut leaving = false;
        loop {
            tokio::select! {
                answer = answers.next() => match answer {
                    Some(answer) => self.take(&answer?),
                    None if leaving => return Ok(Ended::Left),
                    None => return Ok(Ended::Closed),
                },
                () = &mut pace, if !leaving => leaving = true,
            }
        }
    }

    /// Reports as the connection takes them.
    fn reports(&self) -> Reports {
        Reports {
            due: WatchStream::new(self.due.subscribe()),
            sources: self.sources.clone(),
            counts: Arc::clone(&self.counts),
            sequence: Arc::clone(&self.sequence),
            boot_id: self.boot_id.clone(),
            part: self.part.clone(),
            taken: Arc::clone(&self.taken),
            left: false,
        }
    }

    /// Makes reports due, until it is time to leave.
    async fn pace(&self, mut stop: watch::Receiver<bool>) {
        let board = &self.sources.shared.board;
        loop {
            let latest = self.sources.shared.interval().mul_f64(1.2);
            let mut is_round = false;
            let leaving = tokio::select! {
                () = board.round.notified() => {
                    is_round = true;
                    false
                }
                () = board.urgent.notified() => false,
                () = tokio::time::sleep(latest) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            if is_round {
                // An event does not wait for the model servers.
                tokio::select! {
                    () = self.sources.engines.refresh(SCRAPE_WAIT) => {}
                    () = board.urgent.notified() => {}
                }
            }
            if self.due.borrow().number > self.taken.load(Ordering::Relaxed) {
                self.counts.conflated.fetch_add(1, Ordering::Relaxed);
            }
            self.due.send_modify(|due| *due = Due { number: due.number + 1, leaving });
            if leaving {
                return;
            }
            tokio::time::sleep(SPACING).await;
        }
    }

    fn take(&self, answer: &ReportResponse) {
        if let Some(ms) = answer.interval_ms {
            self.sources.shared.set_interval_ms(ms.into());
        }
        match answer.verdict() {
            ReportVerdict::Accepted | ReportVerdict::Unspecified => {}
            verdict @ (ReportVerdict::Stale | ReportVerdict::Invalid | ReportVerdict::TooFast) => {
                // Once a hundred, so that a refusing control plane does not fill the disk.
                if self.counts.refused.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
                    tracing::warn!(verdict = verdict.as_str_name(), reason = %answer.reason, "report refused");
                }
            }
        }
    }
}

/// The stream of reports: each is made when it is asked for.
struct Reports {
    due: WatchStream<Due>,
    sources: Sources,
    counts: Arc<UplinkCounts>,
    sequence: Arc<AtomicU64>,
    boot_id: String,
    part: String,
    taken: Arc<AtomicU64>,
    left: bool,
}

impl Stream for Reports {
    type Item = ReportRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ReportRequest>> {
        if self.left {
            return Poll::Ready(None);
        }
        let due = std::task::ready!(Pin::new(&mut self.due).poll_next(cx));
        Poll::Ready(due.map(|due| self.make(due)))
    }
}

impl Reports {
    fn make(&mut self, due: Due) -> ReportRequest {
        self.taken.store(due.number, Ordering::Relaxed);
        self.left = due.leaving;
        self.counts.reports.fetch_add(1, Ordering::Relaxed);
        let interval = self.sources.shared.interval().as_millis();
        let envelope = Envelope {
            boot_id: self.boot_id.clone(),
            part: self.part.clone(),
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed) + 1,
            interval_ms: u32::try_from(interval).unwrap_or(u32::MAX),
            leaving: due.leaving,
        };
        wire::report(self.sources.snapshot(), envelope)
    }
}

enum Ended {
    Closed,
    Left,
}

/// Ends when asked to stop while nothing is connected that could carry a goodbye.
async fn stopped_without_stream(counts: &UplinkCounts, mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
    if counts.connected.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

fn full_jitter(bound: Duration) -> Duration {
    bound.mul_f64(rand::rng().random_range(0.0..1.0)).clamp(RETRY_MIN, RETRY_MAX)
}

/// Transport errors say what happened only in their sources.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_spread_over_the_whole_bound_and_stay_within_it() {
        let waits: Vec<Duration> = (0..2_000).map(|_| full_jitter(RETRY_MAX)).collect();
        assert!(waits.iter().all(|w| (RETRY_MIN..=RETRY_MAX).contains(w)));
        let below_half = waits.iter().filter(|w| **w < RETRY_MAX / 2).count();
        // Evenly drawn: 1,000 expected, six standard deviations are 134.
        assert!((866..=1_134).contains(&below_half), "{below_half}");
    }

    #[test]
    fn the_first_wait_is_never_below_a_tenth_of_a_second() {
        assert!((0..1_000).all(|_| full_jitter(RETRY_FIRST) >= RETRY_MIN));
    }
}
