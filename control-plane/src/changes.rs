//! One log line for each decision that changed: an endpoint that goes or comes back, an alarm.
//!
//! A gate that moves is no line, since it may rise each step; one that reaches 0, leaves full, or comes
//! back to full is.

use std::collections::BTreeMap;

use tidegate_weighting::{EndpointSnapshot, HardState};

use crate::publish::Snapshot;

/// How an endpoint stands, as a person would say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Full,
    Reduced,
    Closed,
    Draining,
    Down,
}

impl Standing {
    fn of(e: &EndpointSnapshot) -> Self {
        match (e.hard, e.gate.get()) {
            (HardState::Down, _) => Self::Down,
            (HardState::Draining, _) => Self::Draining,
            (HardState::Up, 0) => Self::Closed,
            (HardState::Up, 1_000) => Self::Full,
            (HardState::Up, _) => Self::Reduced,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Reduced => "reduced",
            Self::Closed => "closed",
            Self::Draining => "draining",
            Self::Down => "down",
        }
    }
}

/// Logs what changed between two snapshots.
pub(crate) fn log(before: Option<&Snapshot>, after: &Snapshot) {
    for change in changes(before, after) {
        tracing::info!(
            service = change.service,
            endpoint = change.endpoint,
            from = change.from.map_or("unknown", Standing::as_str),
            to = change.to.as_str(),
            reasons = change.reasons,
            "endpoint changed"
        );
    }
    for alarm in after.alarms.iter().filter(|a| before.is_none_or(|b| !b.alarms.contains(a))) {
        tracing::warn!(kind = alarm.as_str(), ?alarm, "alarm is on");
    }
    for alarm in before.iter().flat_map(|b| &b.alarms).filter(|a| !after.alarms.contains(a)) {
        tracing::info!(kind = alarm.as_str(), ?alarm, "alarm is off");
    }
}

#[derive(Debug, PartialEq)]
struct Change<'a> {
    service: &'a str,
    endpoint: &'a str,
    from: Option<Standing>,
    to: Standing,
    reasons: String,
}

fn changes<'a>(before: Option<&Snapshot>, after: &'a Snapshot) -> Vec<Change<'a>> {
    let known: BTreeMap<(&str, &str), Standing> = before
        .iter()
        .flat_map(|b| &b.services)
        .flat_map(|s| s.endpoints.iter().map(move |e| (s, &e.endpoint)))
        .map(|(s, e)| ((s.name.as_str(), e.address.as_str()), Standing::of(e)))
        .collect();
    let mut all = Vec::new();
    for service in &after.services {
        for endpoint in service.endpoints.iter().map(|e| &e.endpoint) {
            let (service, address) = (service.name.as_str(), endpoint.address.as_str());
            let from = known.get(&(service, address)).copied();
            let to = Standing::of(endpoint);
            // A new endpoint that is well is what everybody expects.
            if from.unwrap_or(Standing::Full) == to {
                continue;
            }
            let reasons: Vec<&str> =
                endpoint.explanation.gates.iter().map(|g| g.reason.as_str()).collect();
            all.push(Change { service, endpoint: address, from, to, reasons: reasons.join(",") });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_policy::units::{PerMille, Time};

    use super::*;
    use crate::publish::tests::{endpoint, fleet};

    fn snapshot(before: &Snapshot, gate: u32, hard: HardState) -> Snapshot {
        let e = EndpointSnapshot { gate: PerMille::clamped(gate), hard, ..endpoint("a", 0, None) };
        before.next(Time::ms(0), fleet(&[("s", &[e])]), 0)
    }

    #[test]
    fn line_comes_once_per_change_and_not_while_a_gate_rises() {
        let start = Snapshot::empty(1, Duration::from_millis(500));
        let mut before = start;
        let mut seen = Vec::new();
        for (gate, hard) in [
            (1_000, HardState::Up),
            (1_000, HardState::Up),
            (500, HardState::Up),
            (550, HardState::Up),
            (0, HardState::Down),
            (0, HardState::Down),
            (100, HardState::Up),
            (1_000, HardState::Up),
            (1_000, HardState::Draining),
            (0, HardState::Up),
        ] {
            let after = snapshot(&before, gate, hard);
            seen.extend(changes(Some(&before), &after).iter().map(|c| c.to));
            before = after;
        }
        use Standing::{Closed, Down, Draining, Full, Reduced};
        assert_eq!(seen, [Reduced, Down, Reduced, Full, Draining, Closed]);
    }
}
