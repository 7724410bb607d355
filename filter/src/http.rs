//! One request: what Envoy tells → facts → gate → its decision carried out.
//!
//! The steering header leaves here set or removed, whatever came in; only a list that an earlier picker
//! set for a service with `existing_list: reorder` may stay. In observe mode, and without a usable
//! configuration, the request is not touched at all; that a client's own copy is not obeyed then is
//! the listener's doing (`early_header_mutation` in `istio/standalone/envoy.yaml`).

use crate::host;
use crate::stats::Metric;
use crate::worker::Worker;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use std::cell::RefCell;
use std::rc::Rc;
use tidegate_policy::classify::RequestFacts;
use tidegate_policy::config::{Config, ExistingList, Mode};
use tidegate_policy::decision::{AnswerReason, Decision, Ticket};
use tidegate_policy::gate::ServedFacts;
use tidegate_policy::outcome::{Ending, Flags, Marker, Seen};

const STEERING: &str = "x-gateway-destination-endpoint";
const RETRY_ON: &str = "x-envoy-retry-on";
const RETRIES: &str = "x-envoy-max-retries";
/// All of these are over before the first byte of an answer went to the client.
const RETRIED: &[u8] = b"connect-failure,refused-stream,reset,5xx";

/// The context of one request.
pub(crate) struct Request {
    /// `None` without a usable configuration.
    worker: Option<Rc<RefCell<Worker>>>,
    ticket: Option<(Ticket, usize)>,
    /// The list in force; empty when nothing was steered.
    list: String,
    seen: Seen,
    has_first_byte: bool,
}

impl Request {
    pub(crate) fn new(worker: Option<Rc<RefCell<Worker>>>) -> Self {
        Self {
            worker,
            ticket: None,
            list: String::new(),
            seen: Seen::default(),
            has_first_byte: false,
        }
    }

    fn decide(&mut self, worker: &mut Worker) -> Action {
        let wants = worker.wants;
        let cluster = wants.cluster.then(|| host::property(&["xds", "cluster_name"])).flatten();
        let authority = wants.host.then(|| host::request_header(":authority")).flatten();
        let path = wants.path.then(|| host::request_header(":path")).flatten();
        let list = wants.list.then(|| host::request_header(STEERING)).flatten();
        let facts = RequestFacts {
            cluster: cluster.as_deref(),
            host: authority.as_deref(),
            path: path.as_deref(),
            existing_list: list.as_deref(),
        };
        let Worker { config, gate, chance, stats, .. } = worker;
        let decision = gate.on_request(host::now(), chance, &facts);
        let (service, made, reason, action) = match decision {
            Decision::Pass { service, reason } => {
                if !is_left_alone(config, service) {
                    host::put_request_header(STEERING, None);
                }
                (service, "passed", reason.as_str(), Action::Continue)
            }
            Decision::Steer { service, ticket, list, retries, reason, mode } => {
                self.ticket = Some((ticket, service));
                let made = match mode {
                    Mode::Observe => "observed",
                    Mode::Enforce => {
                        steer(&list, retries);
                        self.list = list;
                        "steered"
                    }
                };
                (Some(service), made, reason.as_str(), Action::Continue)
            }
            Decision::Answer { service, status, reason, retry_after_s } => {
                let action = if answer(status, reason, retry_after_s) {
                    Action::Pause
                } else {
                    Action::Continue
                };
                (Some(service), "answered", reason.as_str(), action)
            }
        };
        let label = service.and_then(|index| Worker::label(config, index));
        stats.count(Metric::Requests, label, made);
        stats.count(Metric::Picks, label, reason);
        action
    }

    fn first_byte(&mut self) {
        if core::mem::replace(&mut self.has_first_byte, true) {
            return;
        }
        if let (Some((ticket, _)), Some(worker)) = (self.ticket, &self.worker)
            && let Ok(mut worker) = worker.try_borrow_mut()
        {
            worker.gate.on_first_byte(host::now(), &ticket);
        }
    }

    fn end(&mut self) {
        let (Some((ticket, service)), Some(worker)) = (self.ticket.take(), &self.worker) else {
            return;
        };
        let Ok(mut worker) = worker.try_borrow_mut() else { return };
        let Worker { config, gate, stats, .. } = &mut *worker;
        // With response headers the gate was told who answered.
        let is_told = self.seen.status.is_some();
        let address = if is_told { None } else { host::property(&["upstream", "address"]) };
        let facts = if is_told { ServedFacts::default() } else { served(address.as_deref()) };
        let outcome = gate.on_end(host::now(), ticket, &facts, &self.seen);
        stats.count(Metric::Outcomes, Worker::label(config, service), outcome.as_str());
    }
}

/// Whether a request that passes keeps the steering header it came with.
fn is_left_alone(config: &Config, service: Option<usize>) -> bool {
    match service.and_then(|index| config.services.get(index)) {
        Some(service) => {
            service.mode == Mode::Observe || service.existing_list == ExistingList::Reorder
        }
        None => config.mode == Mode::Observe,
    }
}

fn steer(list: &str, retries: u8) {
    host::put_request_header(STEERING, Some(list.as_bytes()));
    if retries > 0 {
        host::put_request_header(RETRY_ON, Some(RETRIED));
        host::put_request_header(RETRIES, Some(&[b'0' + retries.min(9)]));
    }
}

fn answer(status: u16, reason: AnswerReason, retry_after_s: u32) -> bool {
    let message = match reason {
        AnswerReason::NoEndpoints => "no endpoint can take this request now",
    };
    let code = reason.as_str();
    let body = format!(
        "{{\"error\":{{\"message\":\"{message}\",\"type\":\"server_error\",\"param\":null,\"code\":\"{code}\"}}}}\n"
    );
    let retry_after = retry_after_s.to_string();
    let headers = vec![
        ("content-type", "application/json"),
        ("x-tidegate-reason", code),
        ("retry-after", retry_after.as_str()),
    ];
    host::answer(status, headers, &body)
}

/// Who answered, and after how many tries.
fn served(address: Option<&[u8]>) -> ServedFacts<'_> {
    let attempts = host::number(&["upstream", "request_attempt_count"]).unwrap_or_default();
    ServedFacts {
        served: address.and_then(|address| core::str::from_utf8(address).ok()),
        attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
    }
}

fn number(text: Option<Vec<u8>>) -> Option<u32> {
    core::str::from_utf8(&text?).ok()?.parse().ok()
}

impl Context for Request {}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let Some(worker) = self.worker.clone() else { return Action::Continue };
        match worker.try_borrow_mut() {
            Ok(mut worker) => self.decide(&mut worker),
            Err(_) => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _: usize, is_end: bool) -> Action {
        let (Some((ticket, service)), Some(worker)) = (self.ticket, &self.worker) else {
            return Action::Continue;
        };
        let Ok(mut worker) = worker.try_borrow_mut() else { return Action::Continue };
        let status = number(host::response_header(":status"));
        self.seen.status = status.and_then(|status| u16::try_from(status).ok());
        if self.seen.status == Some(503)
            && (host::response_header("retry-after").is_some()
                || host::response_header("x-envoy-overloaded").is_some())
        {
            self.seen.marker = Marker::Overload;
        }
        let Worker { config, gate, stats, .. } = &mut *worker;
        let address = host::property(&["upstream", "address"]);
        let served = served(address.as_deref());
        gate.on_response_headers(host::now(), &ticket, &served);
        let retries = served.attempts.saturating_sub(1);
        let label = Worker::label(config, service);
        if retries > 0 {
            stats.add(Metric::Retries, label, "", retries);
        }
        let planned = usize::try_from(retries).ok().and_then(|nth| self.list.split(',').nth(nth));
        if let (Some(planned), Some(served)) = (planned.filter(|p| !p.is_empty()), served.served)
            && planned != served
        {
            stats.count(Metric::Misses, label, "");
        }
        drop(worker);
        if is_end {
            self.seen.ending = Ending::Complete;
            self.seen.grpc_status = number(host::response_header("grpc-status"));
            self.first_byte();
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, is_end: bool) -> Action {
        if size > 0 || is_end {
            self.first_byte();
        }
        if is_end {
            self.seen.ending = Ending::Complete;
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.first_byte();
        self.seen.ending = Ending::Complete;
        self.seen.grpc_status = number(host::response_trailer("grpc-status"));
        Action::Continue
    }

    fn on_log(&mut self) {
        if self.ticket.is_some() {
            // A whole good answer speaks for itself; the flags, which cost 1 µs, say why another is not.
            let is_good = self.seen.ending == Ending::Complete
                && self.seen.status.is_some_and(|status| (200..400).contains(&status));
            if !is_good {
                self.seen.flags = Flags(host::number(&["response", "flags"]).unwrap_or_default());
            }
            self.end();
        }
    }
}

/// A context that goes without a last word: the request counts as cancelled.
impl Drop for Request {
    fn drop(&mut self) {
        self.end();
    }
}
