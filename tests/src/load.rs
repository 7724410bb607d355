//! An open-loop load: requests leave at the times of a seeded Poisson process, whatever became of
//! those before, as independent clients send them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::client::{Client, Form, Reply, chat};

/// A load in the making.
#[derive(Clone, Debug)]
pub struct Load {
    pub to: Vec<SocketAddr>,
    pub rate: f64,
    pub work_ms: f64,
    pub form: Form,
    pub seed: u64,
}

/// What became of one request; times count from the moment at which it was due.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub due: Instant,
    /// None when no answer came.
    pub status: Option<u16>,
    pub error: Option<String>,
    pub served_by: Option<SocketAddr>,
    /// Tries that Envoy made.
    pub attempts: u32,
    pub first_byte: Option<Duration>,
    pub elapsed: Duration,
    pub is_whole: bool,
}

impl Outcome {
    /// A whole answer with status 200.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.status == Some(200) && self.is_whole
    }
}

impl Load {
    /// A load of `rate` requests a second, each with 20 ms of work, on these Envoys in turn.
    #[must_use]
    pub fn new(to: &[SocketAddr], rate: f64) -> Self {
        Self { to: to.to_vec(), rate, work_ms: 20.0, form: Form::Plain, seed: 1 }
    }

    #[must_use]
    pub fn work_ms(mut self, work_ms: f64) -> Self {
        self.work_ms = work_ms;
        self
    }

    #[must_use]
    pub fn streams(mut self) -> Self {
        self.form = Form::Stream;
        self
    }

    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Starts sending, until told to stop.
    #[must_use]
    pub fn start(self) -> Running {
        let (stop, stopped) = watch::channel(false);
        let outcomes = Arc::<Mutex<Vec<Outcome>>>::default();
        let task = tokio::spawn(send_all(self, Arc::clone(&outcomes), stopped));
        Running { stop, outcomes, task, started: Instant::now() }
    }

    /// Sends for `span` and waits for the last answer.
    pub async fn run_for(self, span: Duration) -> Summary {
        let running = self.start();
        sleep_until(running.started + span).await;
        running.stop().await
    }
}

/// A load that is being sent.
#[derive(Debug)]
pub struct Running {
    stop: watch::Sender<bool>,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    task: JoinHandle<()>,
    pub started: Instant,
}

impl Running {
    /// What has ended so far.
    #[must_use]
    pub fn so_far(&self) -> Summary {
        Summary { outcomes: lock(&self.outcomes).clone() }
    }

    /// What was due after `instant` and has ended so far.
    #[must_use]
    pub fn since(&self, instant: Instant) -> Summary {
        self.so_far().since(instant)
    }

    /// Sends no more and waits for the answers that are due.
    pub async fn stop(self) -> Summary {
        self.stop.send_replace(true);
        // A panic of the sender would show as missing outcomes.
        let _ = self.task.await;
        let outcomes = lock(&self.outcomes).clone();
        Summary { outcomes }
    }
}

fn lock(outcomes: &Mutex<Vec<Outcome>>) -> MutexGuard<'_, Vec<Outcome>> {
    outcomes.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn send_all(load: Load, outcomes: Arc<Mutex<Vec<Outcome>>>, mut stop: watch::Receiver<bool>) {
    let client = Client::new();
    let mut chance = StdRng::seed_from_u64(load.seed);
    let mut open = JoinSet::new();
    let mut due = Instant::now();
    let mut turn = 0;
    while !load.to.is_empty() {
        // Inverse of the exponential distribution; 1 - u is never 0.
        let gap_s = -(1.0 - chance.random::<f64>()).ln() / load.rate;
        due += Duration::from_secs_f64(gap_s);
        tokio::select! {
            () = sleep_until(due) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        while open.try_join_next().is_some() {}
        let to = load.to[turn % load.to.len()];
        turn += 1;
        let (client, outcomes) = (client.clone(), Arc::clone(&outcomes));
        let (work_ms, form) = (load.work_ms, load.form);
        open.spawn(async move {
            let answer = match chat(to, work_ms, form) {
                Ok(request) => client.send(request).await,
                Err(error) => Err(error),
            };
            let outcome = outcome(due, answer);
            lock(&outcomes).push(outcome);
        });
    }
    while open.join_next().await.is_some() {}
}

fn outcome(due: Instant, answer: anyhow::Result<Reply>) -> Outcome {
    let elapsed = due.elapsed();
    match answer {
        Ok(reply) => {
            let late = elapsed.saturating_sub(reply.elapsed);
            Outcome {
                due,
                status: Some(reply.status),
                error: (reply.status != 200).then(|| reply.text()),
                served_by: reply.served_by(),
                attempts: reply.header("x-envoy-attempt-count").parse().unwrap_or(1),
                first_byte: reply.first_byte.map(|at| at + late),
                elapsed,
                is_whole: reply.is_whole,
            }
        }
        Err(error) => Outcome {
            due,
            status: None,
            error: Some(format!("{error:#}")),
            served_by: None,
            attempts: 0,
            first_byte: None,
            elapsed,
            is_whole: false,
        },
    }
}

/// The outcomes of a load or of a part of it.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub outcomes: Vec<Outcome>,
}

impl Summary {
    #[must_use]
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    #[must_use]
    pub fn ok(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_ok()).count()
    }

    /// Requests that a client would call failed, in words.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let failed = self.outcomes.iter().filter(|outcome| !outcome.is_ok());
        failed
            .map(|outcome| {
                format!(
                    "status {:?} from {:?} after {:?}, whole: {}, {}",
                    outcome.status,
                    outcome.served_by,
                    outcome.elapsed,
                    outcome.is_whole,
                    outcome.error.as_deref().unwrap_or_default()
                )
            })
            .collect()
    }

    /// Those due from `instant` on.
    #[must_use]
    pub fn since(&self, instant: Instant) -> Self {
        let kept = self.outcomes.iter().filter(|outcome| outcome.due >= instant);
        Self { outcomes: kept.cloned().collect() }
    }

    /// Answers by model server.
    #[must_use]
    pub fn by_server(&self) -> BTreeMap<SocketAddr, usize> {
        let mut counts = BTreeMap::new();
        for server in self.outcomes.iter().filter_map(|outcome| outcome.served_by) {
            *counts.entry(server).or_default() += 1;
        }
        counts
    }

    /// Part of the answers that came from `servers`.
    #[must_use]
    pub fn share(&self, servers: &[SocketAddr]) -> f64 {
        let by_server = self.by_server();
        let all: usize = by_server.values().sum();
        let theirs: usize = servers.iter().filter_map(|server| by_server.get(server)).sum();
        theirs as f64 / all.max(1) as f64
    }

    /// Time below which `ratio` of the requests ended, in milliseconds; failed ones count as well.
    #[must_use]
    pub fn latency_ms(&self, ratio: f64) -> f64 {
        let mut all: Vec<f64> =
            self.outcomes.iter().map(|outcome| outcome.elapsed.as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        let rank = (ratio * all.len() as f64).ceil() as usize;
        all.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(ms: u64, port: u16) -> Outcome {
        Outcome {
            due: Instant::now(),
            status: Some(200),
            error: None,
            served_by: Some(SocketAddr::from(([127, 0, 0, 1], port))),
            attempts: 1,
            first_byte: None,
            elapsed: Duration::from_millis(ms),
            is_whole: port != 3,
        }
    }

    #[test]
    fn summary_counts_and_ranks() {
        let all = Summary { outcomes: (1..=10).map(|i| ended(i, (i % 4) as u16)).collect() };
        // Ports 1 2 3 0 1 2 3 0 1 2: three each of 1 and 2, two each of 3 and 0; 3 is cut off.
        assert_eq!((all.len(), all.ok(), all.failures().len()), (10, 8, 2));
        assert_eq!(all.share(&[SocketAddr::from(([127, 0, 0, 1], 1))]), 0.3);
        assert_eq!(
            (all.latency_ms(0.5), all.latency_ms(0.91), all.latency_ms(1.0)),
            (5.0, 10.0, 10.0)
        );
    }
}
