//! What the control plane counts about itself.
//!
//! Counters live here; everything that is a state (weights, ages, streams) is read from its owner when
//! somebody asks, by [`expose`]. Names, helps and kinds come from one enum, [`Name`]. Labels are from
//! closed sets, or names that discovery and the report limits bound.

pub mod expose;
pub mod names;

use std::sync::atomic::{AtomicU64, Ordering};

pub use names::{Kind, Name};

/// Why a report was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportReason {
    Invalid,
    Sequence,
    RetiredBoot,
    BootChanged,
    IdentityChanged,
    TooFast,
    MessageSize,
    Nodes,
    Parts,
}

impl ReportReason {
    pub const ALL: [Self; 9] = [
        Self::Invalid,
        Self::Sequence,
        Self::RetiredBoot,
        Self::BootChanged,
        Self::IdentityChanged,
        Self::TooFast,
        Self::MessageSize,
        Self::Nodes,
        Self::Parts,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Sequence => "sequence",
            Self::RetiredBoot => "retired_boot",
            Self::BootChanged => "boot_changed",
            Self::IdentityChanged => "identity_changed",
            Self::TooFast => "too_fast",
            Self::MessageSize => "message_size",
            Self::Nodes => "nodes",
            Self::Parts => "parts",
        }
    }
}

/// What kind of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    Report,
    Watch,
}

impl StreamKind {
    pub const ALL: [Self; 2] = [Self::Report, Self::Watch];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Watch => "watch",
        }
    }
}

/// Why a new stream was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRefusal {
    Rate,
    Count,
}

impl StreamRefusal {
    pub const ALL: [Self; 2] = [Self::Rate, Self::Count];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Count => "count",
        }
    }
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The client closed it.
    Client,
    /// A newer stream of the same client took over.
    Replaced,
    /// Its age was reached.
    Age,
    /// Nothing was said in time.
    Silent,
    /// Updates were not taken in time.
    SlowReader,
    /// A message broke the rules of the stream.
    Protocol,
    /// The connection or a message broke.
    Broken,
    /// This process stops.
    Shutdown,
}

impl StreamEnd {
    pub const ALL: [Self; 8] = [
        Self::Client,
        Self::Replaced,
        Self::Age,
        Self::Silent,
        Self::SlowReader,
        Self::Protocol,
        Self::Broken,
        Self::Shutdown,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Replaced => "replaced",
            Self::Age => "age",
            Self::Silent => "silent",
            Self::SlowReader => "slow_reader",
            Self::Protocol => "protocol",
            Self::Broken => "broken",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What made a step happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Period,
    Event,
    Report,
}

impl Cause {
    pub const ALL: [Self; 3] = [Self::Period, Self::Event, Self::Report];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Period => "period",
            Self::Event => "event",
            Self::Report => "report",
        }
    }
}

/// What became of a feedback message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedbackResult {
    Counted,
    Old,
    TooFast,
}

impl FeedbackResult {
    pub const ALL: [Self; 3] = [Self::Counted, Self::Old, Self::TooFast];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Old => "old",
            Self::TooFast => "too_fast",
        }
    }
}

/// What an update held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    Full,
    Changes,
    /// Nothing changed; sent as a sign of life.
    Heartbeat,
}

impl UpdateKind {
    pub const ALL: [Self; 3] = [Self::Full, Self::Changes, Self::Heartbeat];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Changes => "changes",
            Self::Heartbeat => "heartbeat",
        }
    }
}

/// A count that only goes up.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn one(&self) {
        self.add(1);
    }

    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A count of things that are there now.
#[derive(Debug, Default)]
pub struct Level(AtomicU64);

impl Level {
    /// Counts one more, unless that would be above `max`.
    pub fn try_up(&self, max: u64) -> bool {
        let more = |now: u64| (now < max).then_some(now + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One count per value of a closed set.
#[derive(Debug)]
pub struct Counts<const N: usize>([Count; N]);

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self([const { Count(AtomicU64::new(0)) }; N])
    }
}

impl<const N: usize> Counts<N> {
    /// The count at a place in the set's `ALL`.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&Count> {
        self.0.get(place)
    }

    fn one<T: PartialEq + Copy>(&self, all: &[T; N], value: T) {
        if let Some(count) = self.of(all, value) {
            count.one();
        }
    }

    fn of<T: PartialEq + Copy>(&self, all: &[T; N], value: T) -> Option<&Count> {
        let place = all.iter().position(|v| *v == value)?;
        self.at(place)
    }
}

#[derive(Debug, Default)]
pub struct Metrics {
    pub connections: Level,
    pub connections_refused: Count,
    pub reports_accepted: Count,
    pub report_events: Count,
    pub push_bytes: Count,
    pub step_nanos: Count,
    streams: [Level; 2],
    reports_rejected: Counts<9>,
    streams_refused: Counts<2>,
    streams_ended: Counts<8>,
    steps: Counts<3>,
    feedback: Counts<3>,
    pushes: Counts<3>,
}

impl Metrics {
    pub fn report_rejected(&self, reason: ReportReason) {
        self.reports_rejected.one(&ReportReason::ALL, reason);
    }

    pub fn stream_refused(&self, reason: StreamRefusal) {
        self.streams_refused.one(&StreamRefusal::ALL, reason);
    }

    pub fn stream_ended(&self, reason: StreamEnd) {
        self.streams_ended.one(&StreamEnd::ALL, reason);
    }

    pub fn step(&self, cause: Cause) {
        self.steps.one(&Cause::ALL, cause);
    }

    pub fn feedback(&self, result: FeedbackResult) {
        self.feedback.one(&FeedbackResult::ALL, result);
    }

    pub fn push(&self, kind: UpdateKind, bytes: usize) {
        self.pushes.one(&UpdateKind::ALL, kind);
        self.push_bytes.add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Streams of one kind that are open.
    #[must_use]
    pub const fn streams(&self, kind: StreamKind) -> &Level {
        let [report, watch] = &self.streams;
        match kind {
            StreamKind::Report => report,
            StreamKind::Watch => watch,
        }
    }

    /// Reports refused for one reason.
    #[must_use]
    pub fn rejected(&self, reason: ReportReason) -> u64 {
        self.reports_rejected.of(&ReportReason::ALL, reason).map_or(0, Count::get)
    }

    /// Streams ended for one reason.
    #[must_use]
    pub fn ended(&self, reason: StreamEnd) -> u64 {
        self.streams_ended.of(&StreamEnd::ALL, reason).map_or(0, Count::get)
    }

    /// Updates of one kind that were sent.
    #[must_use]
    pub fn pushed(&self, kind: UpdateKind) -> u64 {
        self.pushes.of(&UpdateKind::ALL, kind).map_or(0, Count::get)
    }
}
