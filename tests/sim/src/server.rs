//! A GPU: requests that run together, and those that wait.
//!
//! With `n` running, each one advances at `speed / (1 + slowdown × (n − 1))`. A slowdown of 0 is a server of
//! independent slots; a batch has some, and the more run the longer each takes. Beyond `slots` requests wait
//! first come, first served. All that run advance alike, so progress is one number for the whole server,
//! and a request is an amount of progress at which it ends: each event costs the logarithm of the number of
//! running requests.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::{Nanos, SECOND};

/// What a server can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    pub speed: f64,
    /// Most that run together.
    pub slots: u32,
    /// By how much each further running request slows all of them.
    pub slowdown: f64,
}

impl Spec {
    /// Progress a second of each of `running` requests.
    #[must_use]
    pub fn rate(&self, running: usize) -> f64 {
        self.speed / (1.0 + self.slowdown * (running.max(1) - 1) as f64)
    }

    /// Seconds of work that it does a second when all slots run.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        f64::from(self.slots) * self.rate(self.slots as usize)
    }
}

/// A request at a server, by its number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    pub request: usize,
    pub work_s: f64,
}

/// A server with what it runs.
#[derive(Clone, Debug)]
pub struct Server {
    spec: Spec,
    /// What each running request has advanced since the start, had it run all along.
    progress: f64,
    at: Nanos,
    /// Progress at the end, and the request. Progress is never negative, so its bits sort as it does.
    running: BinaryHeap<Reverse<(u64, usize)>>,
    waiting: VecDeque<Job>,
}

impl Server {
    #[must_use]
    pub const fn new(spec: Spec) -> Self {
        Self { spec, progress: 0.0, at: 0, running: BinaryHeap::new(), waiting: VecDeque::new() }
    }

    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    #[must_use]
    pub fn has_free_slot(&self) -> bool {
        self.running.len() < self.spec.slots as usize
    }

    /// Runs the job, or lets it wait.
    pub fn take(&mut self, now: Nanos, job: Job) {
        if self.has_free_slot() {
            self.advance(now);
            let end = self.progress + job.work_s;
            self.running.push(Reverse((end.to_bits(), job.request)));
        } else {
            self.waiting.push_back(job);
        }
    }

    /// When the next one ends if nothing else happens.
    #[must_use]
    pub fn next_end(&self) -> Option<Nanos> {
        let Reverse((end, _)) = self.running.peek()?;
        let left_s = (f64::from_bits(*end) - self.progress).max(0.0);
        let wait = libm::ceil(left_s / self.spec.rate(self.running.len()) * SECOND);
        Some(self.at.saturating_add(wait as Nanos))
    }

    /// Ends the next one, and runs the first that waits.
    pub fn end_next(&mut self, now: Nanos) -> Option<usize> {
        self.advance(now);
        let Reverse((_, request)) = self.running.pop()?;
        if let Some(job) = self.waiting.pop_front() {
            self.take(now, job);
        }
        Some(request)
    }

    /// Loses all it has; the requests in the order in which they would have ended, then those that waited.
    pub fn crash(&mut self, now: Nanos) -> Vec<usize> {
        self.advance(now);
        let mut lost = Vec::with_capacity(self.running.len() + self.waiting.len());
        while let Some(Reverse((_, request))) = self.running.pop() {
            lost.push(request);
        }
        lost.extend(self.waiting.drain(..).map(|job| job.request));
        lost
    }

    fn advance(&mut self, now: Nanos) {
        let passed_s = now.saturating_sub(self.at) as f64 / SECOND;
        if !self.running.is_empty() {
            self.progress += passed_s * self.spec.rate(self.running.len());
        }
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn job(request: usize, work_s: f64) -> Job {
        Job { request, work_s }
    }

    #[test]
    fn slots_run_at_full_speed_and_the_rest_waits_in_order() {
        let mut server = Server::new(Spec { speed: 0.5, slots: 2, slowdown: 0.0 });
        for (request, work_s) in [(0, 1.0), (1, 2.0), (2, 1.0), (3, 1.0)] {
            server.take(0, job(request, work_s));
        }
        assert_eq!((server.running(), server.waiting()), (2, 2));
        // 0 ends at 1 / 0.5 = 2 s; 2 runs from 2 s to 4 s, as 1 does; 3 waits for the one that ends first.
        let mut ends = Vec::new();
        while let Some(at) = server.next_end() {
            ends.push((at / S, server.end_next(at).unwrap()));
        }
        assert_eq!(ends, [(2, 0), (4, 1), (4, 2), (6, 3)]);
    }

    #[test]
    fn batch_slows_all_that_run() {
        let mut server = Server::new(Spec { speed: 1.0, slots: 4, slowdown: 0.5 });
        server.take(0, job(0, 2.0));
        // Alone it has done 1 by 1 s; then two run at 1 / 1.5 each. 0 needs 1 × 1.5 more, until 2.5 s; by then
        // 1 has done 1 of 2 as well and goes on alone, until 3.5 s.
        server.take(S, job(1, 2.0));
        let first = server.next_end().unwrap();
        assert!(first.abs_diff(5 * S / 2) < 10, "{first}");
        assert_eq!(server.end_next(first), Some(0));
        let second = server.next_end().unwrap();
        assert!(second.abs_diff(7 * S / 2) < 10, "{second}");
        // A batch of 4 at 1 / (1 + 1.5) each does 1.6 a second.
        assert!((server.spec().capacity() - 1.6).abs() < 1e-12);
    }

    #[test]
    fn crash_loses_every_request_once() {
        let mut server = Server::new(Spec { speed: 1.0, slots: 2, slowdown: 0.0 });
        for (request, work_s) in [(0, 3.0), (1, 1.0), (2, 9.0)] {
            server.take(0, job(request, work_s));
        }
        assert_eq!(server.crash(S / 2), [1, 0, 2]);
        assert_eq!((server.running(), server.waiting(), server.next_end()), (0, 0, None));
    }
}
