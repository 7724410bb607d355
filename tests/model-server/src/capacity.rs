//! How fast a simulated GPU works: continuous batching as an exact processor-sharing queue.
//!
//! Up to `slots` requests run together; the rest wait in order of arrival. A running request first
//! prefills its prompt, then decodes its output, both measured in milliseconds of work at speed 1.
//! With `n` requests running, each gets `speed / (1 + beta * (n - 1))` of work a millisecond: with
//! `beta` 0 a batch costs nothing, with `beta` 1 the batch shares the speed of one.
//!
//! All running requests advance at one rate, so one number, the work `v` that each of them has had
//! since time 0, says everything: a request admitted at `v0` reaches its mark of `w` ms of work when
//! `v` is `v0 + w`. Marks lie in an ordered set; a change of rate moves none of them. An arrival, a
//! mark or a cancel costs O(log n), and no time step enters the result.
//!
//! The rejected way, stepping through time in slices, was off by a slice a request and cost CPU
//! while nothing happened.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the GPU can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests that run together.
    pub(crate) slots: usize,
    /// Slow-down of each by every other one in the batch.
    pub(crate) beta: f64,
    /// Tokens that the KV cache holds; a request enters when its prompt and output fit.
    pub(crate) kv_tokens: u64,
}

/// One request's work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) prefill_ms: f64,
    pub(crate) decode_ms: f64,
    pub(crate) prompt_tokens: u64,
    pub(crate) output_tokens: u64,
    /// Pieces in which the output is handed out: the first is one token, the others share the rest.
    pub(crate) pieces: u64,
}

impl Job {
    /// Tokens handed out by the end of piece `piece`, counted from 1.
    pub(crate) fn tokens_through(&self, piece: u64) -> u64 {
        let others = self.pieces.saturating_sub(1);
        if others == 0 || piece >= self.pieces {
            return self.output_tokens;
        }
        1 + self.output_tokens.saturating_sub(1) * piece.saturating_sub(1) / others
    }

    fn work_through(&self, piece: u64) -> f64 {
        let part = self.tokens_through(piece) as f64 / self.output_tokens.max(1) as f64;
        self.prefill_ms + self.decode_ms * part
    }

    fn tokens_held_at_most(&self) -> u64 {
        self.prompt_tokens + self.output_tokens
    }
}

pub(crate) type JobId = u64;

/// Something that happened to a request, at the exact time of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: JobId,
    pub(crate) at_ms: f64,
    pub(crate) step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Admitted,
    /// Piece number, from 1.
    Piece(u64),
    /// The last piece is out as well.
    Finished,
}

struct Running {
    job: Job,
    /// `v` at admission.
    start: f64,
    /// Next piece to come, from 1.
    piece: u64,
}

pub(crate) struct Capacity {
    limits: Limits,
    speed: f64,
    now_ms: f64,
    v: f64,
    busy_slot_ms: f64,
    next_id: JobId,
    running: BTreeMap<JobId, Running>,
    waiting: VecDeque<(JobId, Job)>,
    /// `(v of the next mark, as ordered bits, request)`: `v` is never negative.
    marks: BTreeSet<(u64, JobId)>,
    kv_reserved: u64,
}

impl Capacity {
    pub(crate) fn new(limits: Limits, speed: f64) -> Self {
        Self {
            limits,
            speed,
            now_ms: 0.0,
            v: 0.0,
            busy_slot_ms: 0.0,
            next_id: 0,
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            marks: BTreeSet::new(),
            kv_reserved: 0,
        }
    }

    /// Adds a request at `now_ms`; what happens to it is told by [`Self::advance`].
    pub(crate) fn submit(&mut self, now_ms: f64, job: Job, events: &mut Vec<Event>) -> JobId {
        self.advance(now_ms, events);
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.push_back((id, job));
        self.admit(events);
        id
    }

    /// Takes a request out, whether it runs, waits or is long gone.
    pub(crate) fn cancel(&mut self, now_ms: f64, id: JobId, events: &mut Vec<Event>) {
        self.advance(now_ms, events);
        if let Some(running) = self.running.remove(&id) {
            self.marks.remove(&(mark(&running), id));
            self.kv_reserved -= running.job.tokens_held_at_most();
        } else {
            self.waiting.retain(|(waiting, _)| *waiting != id);
        }
        self.admit(events);
    }

    /// Changes the speed from `now_ms` on; 0 stops all work.
    pub(crate) fn set_speed(&mut self, now_ms: f64, speed: f64, events: &mut Vec<Event>) {
        self.advance(now_ms, events);
        self.speed = speed;
    }

    /// Moves to `now_ms` and tells, in order, what happened until then.
    pub(crate) fn advance(&mut self, now_ms: f64, events: &mut Vec<Event>) {
        while let Some((at_ms, v, id)) = self.next() {
            if at_ms > now_ms {
                break;
            }
            self.busy_slot_ms += (at_ms - self.now_ms).max(0.0) * self.running.len() as f64;
            self.now_ms = self.now_ms.max(at_ms);
            self.v = v;
            self.reach(id, events);
        }
        let passed_ms = (now_ms - self.now_ms).max(0.0);
        self.v += passed_ms * self.rate();
        self.busy_slot_ms += passed_ms * self.running.len() as f64;
        self.now_ms += passed_ms;
    }

    /// When the next event comes if nothing else does.
    pub(crate) fn next_at_ms(&self) -> Option<f64> {
        self.next().map(|(at_ms, _, _)| at_ms)
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Integral of the busy slots over time; its growth over a period is the mean load in it.
    pub(crate) fn busy_slot_ms(&self) -> f64 {
        self.busy_slot_ms
    }

    /// Share of the KV cache that prompts and tokens made so far hold.
    pub(crate) fn kv_ratio(&self) -> f64 {
        // From +0: the sum of nothing would be -0 in a metric.
        let held = self.running.values().fold(0.0, |sum, running| sum + self.held(running));
        (held / self.limits.kv_tokens.max(1) as f64).min(1.0)
    }

    fn held(&self, running: &Running) -> f64 {
        let job = &running.job;
        let decoded_ms = self.v - running.start - job.prefill_ms;
        let part =
            if job.decode_ms > 0.0 { (decoded_ms / job.decode_ms).clamp(0.0, 1.0) } else { 0.0 };
        job.prompt_tokens as f64 + part * job.output_tokens as f64
    }

    fn rate(&self) -> f64 {
        match self.running.len() {
            0 => 0.0,
            n => self.speed / (1.0 + self.limits.beta * (n - 1) as f64),
        }
    }

    fn next(&self) -> Option<(f64, f64, JobId)> {
        let &(bits, id) = self.marks.first()?;
        let rate = self.rate();
        if rate <= 0.0 {
            return None;
        }
        let v = f64::from_bits(bits);
        Some((self.now_ms + (v - self.v).max(0.0) / rate, v, id))
    }

    fn admit(&mut self, events: &mut Vec<Event>) {
        while self.running.len() < self.limits.slots
            && let Some(&(id, job)) = self.waiting.front()
        {
            let fits = self.kv_reserved + job.tokens_held_at_most() <= self.limits.kv_tokens;
            // A request larger than the whole cache runs alone rather than never.
            if !fits && !self.running.is_empty() {
                break;
            }
            self.waiting.pop_front();
            self.kv_reserved += job.tokens_held_at_most();
            let running = Running { job, start: self.v, piece: 1 };
            self.marks.insert((mark(&running), id));
            self.running.insert(id, running);
            events.push(Event { id, at_ms: self.now_ms, step: Step::Admitted });
        }
    }

    fn reach(&mut self, id: JobId, events: &mut Vec<Event>) {
        self.marks.pop_first();
        let Some(running) = self.running.get_mut(&id) else { return };
        events.push(Event { id, at_ms: self.now_ms, step: Step::Piece(running.piece) });
        if running.piece < running.job.pieces {
            running.piece += 1;
            let next = mark(running);
            self.marks.insert((next, id));
            return;
        }
        self.kv_reserved -= running.job.tokens_held_at_most();
        self.running.remove(&id);
        events.push(Event { id, at_ms: self.now_ms, step: Step::Finished });
        self.admit(events);
    }
}

fn mark(running: &Running) -> u64 {
    (running.start + running.job.work_through(running.piece)).to_bits()
}

#[cfg(test)]
mod tests;
