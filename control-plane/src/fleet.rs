//! `FleetService`: pushes snapshots to proxies and takes their feedback.
//!
//! Per stream there is one place for an update, and it is filled only when it is empty, from the
//! newest snapshot: latest wins, nothing queues. A proxy that leaves it full for too long loses its
//! connection, since a stream that nobody reads cannot be told that it ends. Reading and writing go on
//! side by side, so that a proxy which reads slowly is still heard.

use std::sync::Arc;

use prost::Message;
use tidegate_proto::v1::{
    FleetUpdate, WatchRequest, fleet_service_server::FleetService, watch_request,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    bucket::Bucket,
    connection::ConnectionHandle,
    core::{Admitted, Core},
    ingest::{status_of, stopped},
    metrics::{FeedbackResult, StreamEnd, StreamKind, UpdateKind},
    spread,
    wire::{self, Interest},
};

/// The service; one per process.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub core: Arc<Core>,
}

#[tonic::async_trait]
impl FleetService for Fleet {
    type WatchStream = ReceiverStream<Result<FleetUpdate, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let admitted = self.core.admit(StreamKind::Watch)?;
        let connection = request.extensions().get::<ConnectionHandle>().cloned();
        let (updates, taken) = mpsc::channel(1);
        tokio::spawn(serve(admitted, request.into_inner(), updates, connection));
        Ok(Response::new(ReceiverStream::new(taken)))
    }
}

async fn serve(
    admitted: Admitted,
    messages: Streaming<WatchRequest>,
    updates: mpsc::Sender<Result<FleetUpdate, Status>>,
    connection: Option<ConnectionHandle>,
) {
    let core = Arc::clone(&admitted.core);
    let stop = admitted.stream.stop.clone();
    let age = sleep(spread(core.config.timeouts.stream_age));
    let (interest, interests) = watch::channel(None);
    let end = tokio::select! {
        () = stop.cancelled() => (stopped(&core), None),
        () = age => (StreamEnd::Age, None),
        end = listen(&admitted, messages, interest) => end,
        end = push(&core, interests, &updates) => (end, None),
    };
    let (end, status) = end;
    if let Some(status) = status.or_else(|| status_of(end)) {
        // Where the place is taken, the end of the stream has to do.
        let _ = updates.try_send(Err(status));
    }
    if end == StreamEnd::SlowReader
        && let Some(connection) = connection
    {
        connection.close();
    }
    core.metrics.stream_ended(end);
    tracing::info!(stream = admitted.stream.id.0, end = end.as_str(), "proxy left");
}

/// Reads what the proxy says until it stops.
async fn listen(
    admitted: &Admitted,
    mut messages: Streaming<WatchRequest>,
    interest: watch::Sender<Option<Interest>>,
) -> (StreamEnd, Option<Status>) {
    let core = &admitted.core;
    let limits = &core.config.limits;
    let mut bucket = Bucket::new(Instant::now(), limits.feedback_per_second, limits.feedback_burst);
    let first = timeout(core.config.timeouts.hello, messages.message()).await;
    let Ok(mut next) = first else { return (StreamEnd::Silent, None) };
    loop {
        let message = match next {
            Ok(Some(message)) => message,
            Ok(None) => return (StreamEnd::Client, None),
            Err(status) => return (StreamEnd::Broken, Some(status)),
        };
        if let Err(status) = hear(admitted, message, &mut bucket, &interest) {
            return (StreamEnd::Protocol, Some(status));
        }
        next = messages.message().await;
    }
}

/// Takes one message of a proxy.
fn hear(
    admitted: &Admitted,
    message: WatchRequest,
    bucket: &mut Bucket,
    interest: &watch::Sender<Option<Interest>>,
) -> Result<(), Status> {
    let core = &admitted.core;
    let limits = &core.config.limits;
    let now = Instant::now();
    match message.message {
        Some(watch_request::Message::Hello(hello)) => {
            // One is enough; each costs a look at all proxies, a log line and a full update.
            if !bucket.take(now) {
                return Err(Status::resource_exhausted("hello: said too often"));
            }
            let hello = wire::hello(hello, limits).map_err(Status::invalid_argument)?;
            tracing::info!(
                stream = admitted.stream.id.0,
                proxy = hello.proxy_id,
                version = hello.filter_version,
                config = hello.config.as_str(),
                "proxy came"
            );
            interest.send_replace(Some(Interest(hello.services.clone())));
            core.proxies().open(now, &admitted.stream, hello);
            Ok(())
        }
        Some(watch_request::Message::Feedback(feedback)) => {
            if interest.borrow().is_none() {
                return Err(Status::invalid_argument("feedback: comes after hello"));
            }
            if !bucket.take(now) {
                core.metrics.feedback(FeedbackResult::TooFast);
                return Ok(());
            }
            let feedback = wire::feedback(feedback, limits).map_err(Status::invalid_argument)?;
            let counted = core.proxies().feedback(now, admitted.stream.id, feedback);
            let result = if counted { FeedbackResult::Counted } else { FeedbackResult::Old };
            core.metrics.feedback(result);
            Ok(())
        }
        // A message of a newer protocol.
        None => Ok(()),
    }
}

/// Sends each snapshot, or the newest one where several came while the proxy was busy.
pub(crate) async fn push(
    core: &Core,
    mut interests: watch::Receiver<Option<Interest>>,
    updates: &mpsc::Sender<Result<FleetUpdate, Status>>,
) -> StreamEnd {
    let timeouts = &core.config.timeouts;
    let mut snapshots = core.snapshots();
    let mut sent: Option<u64> = None;
    let mut asked = None;
    let mut full_at = Instant::now();
    loop {
        let place = match timeout(timeouts.slow_reader, updates.reserve()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return StreamEnd::Client,
            Err(_) => return StreamEnd::SlowReader,
        };
        let interest = interests.borrow_and_update().clone();
        if interest != asked {
            // Other services: what was sent is no base for changes.
            sent = None;
            asked.clone_from(&interest);
        }
        let snapshot = snapshots.borrow_and_update().clone();
        if let (Some(interest), Some(snapshot)) = (interest, snapshot)
            && sent != Some(snapshot.epoch)
        {
            let now = Instant::now();
            let since = sent.filter(|_| now < full_at);
            let update = wire::update(&snapshot, since, &interest);
            core.metrics.push(kind_of(&update), update.encoded_len());
            if update.full {
                full_at = now + timeouts.full_update;
            }
            sent = Some(snapshot.epoch);
            place.send(Ok(update));
        }
        let ended = tokio::select! {
            changed = snapshots.changed() => changed.is_err(),
            changed = interests.changed() => changed.is_err(),
        };
        if ended {
            return StreamEnd::Client;
        }
    }
}

fn kind_of(update: &FleetUpdate) -> UpdateKind {
    if update.full {
        UpdateKind::Full
    } else if update.services.is_empty() && update.services_removed.is_empty() {
        UpdateKind::Heartbeat
    } else {
        UpdateKind::Changes
    }
}

#[cfg(test)]
mod tests;
