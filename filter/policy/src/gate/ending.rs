//! How a request's end is charged: to the endpoint that had it, and to those that failed before.
//!
//! A filter sees the final answer only, not the tries before it. Envoy tells how many tries it made and
//! which endpoint had the last one. When that is the entry of the list at that place, every earlier
//! entry had one try that failed. When it is not, hosts were skipped or Envoy's own load balancer took
//! over; then nothing is known of the tries before, and only the last one counts.

use alloc::sync::Arc;

use super::{Gate, Open};
use crate::{
    address,
    decision::Ticket,
    local::Local,
    outcome::{self, Outcome, Seen},
    success::Verdict,
    units::Time,
};

/// What the filter learns when response headers come, or at the end without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedFacts<'a> {
    /// Endpoint of the last try, as Envoy names it.
    pub served: Option<&'a str>,
    /// Tries that Envoy made; 0 when unknown.
    pub attempts: u32,
}

impl Gate {
    /// Response headers came.
    pub fn on_response_headers(&mut self, now: Time, ticket: &Ticket, facts: &ServedFacts<'_>) {
        if let Some(mut open) = self.open.remove(&ticket.0) {
            self.settle(now, &mut open, facts);
            open.answered = Some(now.since(open.started));
            self.open.insert(ticket.0, open);
        }
    }

    /// The first byte of the answer's body came: a client's time to first token. A stream of tokens sends
    /// its headers before it has one.
    pub fn on_first_byte(&mut self, now: Time, ticket: &Ticket) {
        if let Some(open) = self.open.get_mut(&ticket.0).filter(|open| open.answered.is_some()) {
            open.answered = Some(now.since(open.started));
        }
    }

    /// The request is over; a ticket counts once.
    pub fn on_end(
        &mut self,
        now: Time,
        ticket: Ticket,
        facts: &ServedFacts<'_>,
        seen: &Seen,
    ) -> Outcome {
        let outcome = outcome::classify(seen);
        let Some(mut open) = self.open.remove(&ticket.0) else { return outcome };
        let answered = open.answered;
        if answered.is_none() {
            self.settle(now, &mut open, facts);
        }
        let Some(address) = open.charged.take() else { return outcome };
        self.with_local(open.service, &address, |local| {
            local.end();
            local.totals.ended(outcome);
            if let Some(span) = answered.filter(|_| outcome == Outcome::Ok) {
                let totals = &mut local.totals;
                totals.ttft_ms_sum = totals.ttft_ms_sum.saturating_add(span.as_ms());
                totals.ttft_count = totals.ttft_count.saturating_add(1);
            }
        });
        let verdict = match outcome {
            Outcome::Ok => Verdict::Success,
            Outcome::Broken => Verdict::Failure,
            Outcome::Busy | Outcome::Cancelled => return outcome,
        };
        if let Some(service) = self.services.get_mut(open.service) {
            service.judge(now, &address, verdict);
        }
        outcome
    }

    /// Moves the request to the endpoint that really has it, and charges the tries before.
    fn settle(&mut self, now: Time, open: &mut Open, facts: &ServedFacts<'_>) {
        let last = usize::try_from(facts.attempts).unwrap_or(usize::MAX).saturating_sub(1);
        let planned = open.list.get(last).cloned();
        let served = match facts.served {
            Some(served) => self.known_address(open.service, served, planned.as_ref()),
            // No word from Envoy: the plan is the best guess.
            None if facts.attempts > 0 => planned.clone(),
            None => open.charged.clone(),
        };
        if served.is_some() && served == planned {
            // Every earlier entry had one try, and it failed.
            for (nth, address) in open.list.iter().take(last).enumerate() {
                self.with_local(open.service, address, |local| {
                    // The first one was charged when the request was sent.
                    if nth > 0 {
                        local.start();
                    }
                    local.end();
                    local.totals.ended(Outcome::Broken);
                });
                if let Some(service) = self.services.get_mut(open.service) {
                    service.judge(now, address, Verdict::Failure);
                }
            }
            if last > 0 {
                open.charged = None;
            }
        } else if let Some(charged) =
            open.charged.take_if(|charged| Some(&*charged) != served.as_ref())
        {
            // Tries went elsewhere than planned, so nothing is known about those before the last.
            self.with_local(open.service, &charged, |local| {
                local.end();
                local.totals.ended(Outcome::Cancelled);
            });
        }
        if open.charged.is_none()
            && let Some(served) = served
        {
            self.with_local(open.service, &served, Local::start);
            open.charged = Some(served);
        }
    }

    /// The endpoint that Envoy calls `served`, when the service has it.
    fn known_address(
        &self,
        index: usize,
        served: &str,
        planned: Option<&Arc<str>>,
    ) -> Option<Arc<str>> {
        if let Some(planned) = planned.filter(|planned| &***planned == served) {
            return Some(planned.clone());
        }
        let canonical = address::canonical(served)?;
        if let Some(planned) = planned.filter(|planned| ***planned == *canonical) {
            return Some(planned.clone());
        }
        let service = self.services.get(index)?;
        service.address(service.position(&canonical)?).cloned()
    }

    pub(super) fn with_local(
        &mut self,
        index: usize,
        address: &str,
        change: impl FnOnce(&mut Local),
    ) {
        if let Some(service) = self.services.get_mut(index) {
            service.with_local(address, change);
        }
    }

    /// Ends a request whose end was never told.
    pub(super) fn forget(&mut self, open: Open) {
        if let Some(address) = open.charged {
            self.with_local(open.service, &address, |local| {
                local.end();
                local.totals.ended(Outcome::Cancelled);
            });
        }
    }
}
