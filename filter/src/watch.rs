//! The stream to the control plane, held by the VM that leads, and the snapshot that it leaves in shared
//! data for all. What the stream does when is decided in `tidegate_policy::link`; this performs it.

use crate::host::{self, Cas};
use crate::stats::{Metric, Stats};
use crate::wire;
use tidegate_policy::chance::Chance;
use tidegate_policy::link::{End, Link, Step};
use tidegate_policy::snapshot::Fleet;
use tidegate_policy::units::Time;

const SERVICE: &str = "tidegate.v1.FleetService";
const METHOD: &str = "Watch";
/// Holds the key of the snapshot that was written last.
const NEWEST: &str = "tidegate.1.newest";

pub(crate) struct Watch {
    /// A serialised `GrpcService`.
    upstream: String,
    snapshot_key: String,
    /// A small value whose version changes with the snapshot, so that readers copy that only when new.
    version_key: String,
    link: Link,
    /// What the present stream has said; each stream starts with the full state.
    fleet: Fleet,
}

impl Watch {
    pub(crate) fn new(upstream: String, prefix: &str) -> Self {
        let (snapshot_key, version_key) =
            (format!("{prefix}fleet"), format!("{prefix}fleet.version"));
        Self { upstream, snapshot_key, version_key, link: Link::new(), fleet: Fleet::new() }
    }

    pub(crate) fn state(&self) -> u64 {
        self.link.state().into()
    }

    /// One tick of the leader: `hello` and `feedback` make what is to be sent.
    pub(crate) fn lead(
        &mut self,
        now: Time,
        chance: &mut Chance,
        stats: &mut Stats,
        hello: impl FnOnce() -> Vec<u8>,
        feedback: impl FnOnce(u64) -> Vec<u8>,
    ) {
        match self.link.tick(now, self.fleet.period(), chance) {
            Step::Wait => {}
            Step::Open => match host::open_stream(&self.upstream, SERVICE, METHOD) {
                Some(token) => {
                    self.fleet = Fleet::new();
                    self.link.opened(now, token);
                    host::send(token, &hello());
                }
                None => {
                    self.link.ended(now, chance);
                    Self::report(&self.link, End::Refused, stats);
                }
            },
            Step::Reset { token, end } => {
                host::cancel(token);
                Self::report(&self.link, end, stats);
            }
            Step::Feedback { token, sequence } => {
                if host::send(token, &feedback(sequence)) {
                    stats.count(Metric::Feedback, None, "");
                }
            }
        }
    }

    /// Another VM leads.
    pub(crate) fn follow(&mut self, stats: &mut Stats) {
        if let Some(token) = self.link.follow() {
            host::cancel(token);
            stats.count(Metric::StreamEnds, None, End::LostLease.as_str());
        }
    }

    /// A message of `size` bytes is there to be read.
    pub(crate) fn receive(&mut self, token: u32, size: usize, now: Time, stats: &mut Stats) {
        if !self.link.listens_to(token) {
            return;
        }
        let refused = if size > wire::MESSAGE_BYTES_MAX {
            Some(wire::WireError::TooLong.as_str())
        } else {
            match wire::update(&host::message(size)) {
                Ok(update) => self.fleet.apply(now, update).err().map(|error| error.as_str()),
                Err(error) => Some(error.as_str()),
            }
        };
        if let Some(reason) = refused {
            stats.count(Metric::DecodeErrors, None, reason);
            return self.link.unusable();
        }
        let ends = self.link.ends_in_a_row();
        if self.link.heard(now) {
            log::info!("the control plane talks, after {ends} ends of stream in a row");
        }
        stats.count(Metric::Updates, None, "");
        if let Some(update) = self.fleet.export(now) {
            let value = [&now.as_ms().to_le_bytes()[..], &wire::update_bytes(update)].concat();
            host::share(&self.snapshot_key, &value, None);
            host::share(&self.version_key, b"1", None);
            host::share(NEWEST, self.snapshot_key.as_bytes(), None);
        }
    }

    /// The stream was closed from outside.
    pub(crate) fn closed(
        &mut self,
        token: u32,
        status: u32,
        now: Time,
        chance: &mut Chance,
        stats: &mut Stats,
    ) {
        if self.link.is_on(token) {
            log::debug!("the stream to the control plane closed with gRPC status {status}");
            self.link.ended(now, chance);
            Self::report(&self.link, End::Closed, stats);
        }
    }

    /// Counts every end, and logs the first in a row: a control plane that is away is one event.
    fn report(link: &Link, end: End, stats: &mut Stats) {
        stats.count(Metric::StreamEnds, None, end.as_str());
        if link.ends_in_a_row() == 1 {
            log::warn!("no stream to the control plane: {}; trying again", end.as_str());
        }
    }

    /// The shared snapshot, if it changed since version `seen`: when it was written, and its version.
    pub(crate) fn read(&self, seen: Cas) -> Option<(Time, Vec<u8>, Cas)> {
        let (_, version) = host::shared(&self.version_key);
        if version.is_none() || version == seen {
            return None;
        }
        let (written, bytes) = read(&self.snapshot_key)?;
        Some((written, bytes, version))
    }

    /// The newest snapshot of any configuration, for a new one that asks for something else.
    pub(crate) fn read_any() -> Option<(Time, Vec<u8>)> {
        read(&String::from_utf8(host::shared(NEWEST).0).ok()?)
    }
}

fn read(key: &str) -> Option<(Time, Vec<u8>)> {
    let (value, _) = host::shared(key);
    let (written, bytes) = value.split_first_chunk::<8>()?;
    Some((Time::ms(u64::from_le_bytes(*written)), bytes.to_vec()))
}
