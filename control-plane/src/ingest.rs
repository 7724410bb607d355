//! `ReportService`: takes reports, checks them, hands them to the store.
//!
//! A stream belongs to one node and part, which its first report names; one stream per reporter, and a
//! newer one takes over. Every report is answered with a verdict, and where it is not accepted with the
//! reason: path, value and range. Answers that a reporter does not read are dropped, never queued.

use std::sync::Arc;

use tidegate_proto::v1::{
    ReportRequest, ReportResponse, ReportVerdict, report_service_server::ReportService,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::{
    bucket::Bucket,
    core::{Admitted, Core},
    metrics::{ReportReason, StreamEnd, StreamKind},
    spread,
    store::{Accepted, Refusal},
    text, wire,
};

/// Answers that wait for a reporter to read them.
const ANSWERS_MAX: usize = 4;

/// The service; one per process.
#[derive(Clone, Debug)]
pub struct Ingest {
    pub core: Arc<Core>,
}

#[tonic::async_trait]
impl ReportService for Ingest {
    type ReportStream = ReceiverStream<Result<ReportResponse, Status>>;

    async fn report(
        &self,
        request: Request<Streaming<ReportRequest>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let admitted = self.core.admit(StreamKind::Report)?;
        let (answers, taken) = mpsc::channel(ANSWERS_MAX);
        tokio::spawn(serve(admitted, request.into_inner(), answers));
        Ok(Response::new(ReceiverStream::new(taken)))
    }
}

async fn serve(
    admitted: Admitted,
    mut reports: Streaming<ReportRequest>,
    answers: mpsc::Sender<Result<ReportResponse, Status>>,
) {
    let core = Arc::clone(&admitted.core);
    let stop = admitted.stream.stop.clone();
    let mut intake = Intake::new(admitted, Instant::now());
    let life = sleep(spread(core.config.timeouts.stream_age));
    tokio::pin!(life);
    let first = timeout(core.config.timeouts.hello, reports.message());
    let mut next = tokio::select! {
        () = stop.cancelled() => Err(StreamEnd::Shutdown),
        first = first => first.map_err(|_| StreamEnd::Silent),
    };
    let end = loop {
        let report = match next {
            Ok(Ok(Some(report))) => report,
            Ok(Ok(None)) => break StreamEnd::Client,
            Ok(Err(status)) => {
                if is_too_large(&status) {
                    core.metrics.report_rejected(ReportReason::MessageSize);
                    // Best effort: the stream ends either way.
                    let _ = answers.try_send(Err(status));
                }
                break StreamEnd::Broken;
            }
            Err(end) => break end,
        };
        let answer = intake.take(report, Instant::now());
        let _ = answers.try_send(Ok(answer));
        next = tokio::select! {
            () = stop.cancelled() => Err(stopped(&core)),
            () = &mut life => Err(StreamEnd::Age),
            report = reports.message() => Ok(report),
        };
    };
    if let Some(status) = status_of(end) {
        let _ = answers.try_send(Err(status));
    }
    core.metrics.stream_ended(end);
    tracing::info!(stream = intake.name(), end = end.as_str(), "reporter left");
}

/// Why a stop was asked for: the whole process, or this stream only.
pub(crate) fn stopped(core: &Core) -> StreamEnd {
    if core.stop.is_cancelled() { StreamEnd::Shutdown } else { StreamEnd::Replaced }
}

/// The status that a stream ends with; absent is a good end.
pub(crate) fn status_of(end: StreamEnd) -> Option<Status> {
    match end {
        StreamEnd::Client | StreamEnd::Age | StreamEnd::Broken => None,
        StreamEnd::Replaced => Some(Status::aborted("a newer stream took over")),
        StreamEnd::Silent => Some(Status::deadline_exceeded("nothing was said in time")),
        StreamEnd::SlowReader => Some(Status::resource_exhausted("updates were not taken in time")),
        StreamEnd::Protocol => Some(Status::invalid_argument("a message broke the rules")),
        StreamEnd::Shutdown => Some(Status::unavailable("the control plane stops")),
    }
}

pub(crate) fn is_too_large(status: &Status) -> bool {
    matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted)
}

/// One stream of reports: who sends, and how often.
#[derive(Debug)]
pub struct Intake {
    admitted: Admitted,
    bucket: Bucket,
    sender: Option<(String, String)>,
}

impl Intake {
    #[must_use]
    pub fn new(admitted: Admitted, now: Instant) -> Self {
        let limits = &admitted.core.config.limits;
        let bucket = Bucket::new(now, limits.reports_per_second, limits.reports_burst);
        Self { admitted, bucket, sender: None }
    }

    /// Takes one report and says what became of it.
    pub fn take(&mut self, report: ReportRequest, now: Instant) -> ReportResponse {
        let core = Arc::clone(&self.admitted.core);
        let (sequence, interval_ms) = (report.sequence, report.interval_ms);
        let (node, part) = (report.node.clone(), report.part.clone());
        match self.judge(report, now) {
            Ok(accepted) => {
                core.metrics.reports_accepted.one();
                core.reports.notify_one();
                if accepted == Accepted::Event {
                    core.metrics.report_events.one();
                    core.events.notify_one();
                }
                if self.sender.is_none() {
                    tracing::info!(node, part, "reporter came");
                    self.sender = Some((node, part));
                }
                answer(sequence, ReportVerdict::Accepted, String::new())
            }
            Err((reason, text)) => {
                core.metrics.report_rejected(reason);
                if reason == ReportReason::Invalid {
                    core.store().count_refused(&node, &part);
                }
                let node = text::cut(&node, core.config.limits.text_bytes);
                tracing::debug!(node, reason = reason.as_str(), text, "report refused");
                let mut answer = answer(sequence, verdict_of(reason), text);
                if reason == ReportReason::TooFast {
                    // Only ever slower: a burst of events is no reason to change the period.
                    let shortest_ms =
                        1_000_u32.div_ceil(core.config.limits.reports_per_second.max(1));
                    answer.interval_ms = (interval_ms < shortest_ms).then_some(shortest_ms);
                }
                answer
            }
        }
    }

    fn judge(
        &mut self,
        report: ReportRequest,
        now: Instant,
    ) -> Result<Accepted, (ReportReason, String)> {
        let core = &self.admitted.core;
        let limits = &core.config.limits;
        let too_fast = || {
            let text = format!("sent faster than {} reports/s", limits.reports_per_second);
            (ReportReason::TooFast, text)
        };
        if !self.bucket.take(now) {
            return Err(too_fast());
        }
        if let Some((node, part)) = &self.sender
            && (node, part) != (&report.node, &report.part)
        {
            let text = format!("node: a stream belongs to one reporter, this one to {node:?}");
            return Err((ReportReason::IdentityChanged, text));
        }
        if !core.store().may_send(now, &report.node, &report.part) {
            return Err(too_fast());
        }
        let offer = wire::offer(report, core.time(now), limits)
            .map_err(|text| (ReportReason::Invalid, text))?;
        let sequence = offer.sequence;
        let stored = core.store().offer(now, &self.admitted.stream, offer);
        stored.map_err(|refusal| refused(refusal, sequence))
    }

    fn name(&self) -> String {
        match &self.sender {
            Some((node, part)) if part.is_empty() => node.clone(),
            Some((node, part)) => format!("{node}/{part}"),
            None => "unnamed".into(),
        }
    }
}

fn refused(refusal: Refusal, sequence: u64) -> (ReportReason, String) {
    match refusal {
        Refusal::Sequence { stored } => {
            let text = format!("sequence: {sequence} is not above {stored}");
            (ReportReason::Sequence, text)
        }
        Refusal::RetiredBoot => {
            (ReportReason::RetiredBoot, "boot_id: was replaced by a newer one".into())
        }
        Refusal::BootChanged => {
            (ReportReason::BootChanged, "boot_id: changes only with a new stream".into())
        }
        Refusal::Nodes { max } => (ReportReason::Nodes, format!("node: {max} nodes are known")),
        Refusal::Parts { max } => {
            (ReportReason::Parts, format!("part: {max} reporters share this node"))
        }
    }
}

fn verdict_of(reason: ReportReason) -> ReportVerdict {
    match reason {
        ReportReason::Sequence | ReportReason::RetiredBoot => ReportVerdict::Stale,
        ReportReason::TooFast => ReportVerdict::TooFast,
        ReportReason::Invalid
        | ReportReason::BootChanged
        | ReportReason::IdentityChanged
        | ReportReason::MessageSize
        | ReportReason::Nodes
        | ReportReason::Parts => ReportVerdict::Invalid,
    }
}

fn answer(sequence: u64, verdict: ReportVerdict, reason: String) -> ReportResponse {
    ReportResponse { sequence, verdict: verdict.into(), reason, interval_ms: None }
}

#[cfg(test)]
mod tests;
