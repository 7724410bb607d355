//! The cheapest endpoint picker that Envoy's ext_proc can talk to: it looks at nothing and answers the request headers at
//! once with one header. What it costs is what the protocol costs; a picker that decides something costs more.
//!
//! The messages are the part of `envoy.service.ext_proc.v3` that such a picker needs, with its field numbers; prost
//! skips the other fields. Runs as a process of its own, so that its CPU time can be told from the client's.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

const STEERING_HEADER: &str = "x-gateway-destination-endpoint";
/// `HeaderAppendAction`: overwrite if it exists, else add.
const OVERWRITE_OR_ADD: i32 = 2;

/// `ProcessingRequest`; only which of its messages came is of interest.
#[derive(Clone, PartialEq, prost::Message)]
struct Asked {
    #[prost(message, optional, tag = "2")]
    request_headers: Option<Nothing>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

/// `ProcessingResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    request_headers: Option<HeadersResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeadersResponse {
    #[prost(message, optional, tag = "1")]
    response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    header_mutation: Option<HeaderMutation>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    set_headers: Vec<HeaderValueOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    header: Option<HeaderValue>,
    #[prost(int32, tag = "3")]
    append_action: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeaderValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "3")]
    raw_value: Vec<u8>,
}

impl Answer {
    fn steering_to(endpoint: &str) -> Self {
        let header = HeaderValue { key: STEERING_HEADER.to_owned(), raw_value: endpoint.into() };
        let option = HeaderValueOption { header: Some(header), append_action: OVERWRITE_OR_ADD };
        let mutation = HeaderMutation { set_headers: vec![option] };
        let response = CommonResponse { header_mutation: Some(mutation) };
        Self { request_headers: Some(HeadersResponse { response: Some(response) }) }
    }
}

/// Serves until its process ends; picks the endpoints in turn.
pub async fn serve(listen: SocketAddr, endpoints: Vec<SocketAddr>) -> anyhow::Result<()> {
    anyhow::ensure!(!endpoints.is_empty(), "no endpoint to pick");
    let answers =
        endpoints.iter().map(|endpoint| Answer::steering_to(&endpoint.to_string())).collect();
    let picker = Picker { answers: Arc::new(answers), turn: Arc::default() };
    let listener = TcpListener::bind(listen).await?;
    tonic::transport::Server::builder()
        .add_service(picker)
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?;
    Ok(())
}

#[derive(Clone)]
struct Picker {
    answers: Arc<Vec<Answer>>,
    turn: Arc<AtomicUsize>,
}

impl Picker {
    fn answer(&self, asked: &Asked) -> Answer {
        if asked.request_headers.is_none() {
            return Answer::default();
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.answers[turn % self.answers.len()].clone()
    }
}

impl NamedService for Picker {
    const NAME: &'static str = "envoy.service.ext_proc.v3.ExternalProcessor";
}

impl tower_service::Service<http::Request<tonic::body::Body>> for Picker {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// The service has one method, `Process`, so the path needs no look.
    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let picker = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Answer, Asked>::default());
            Ok(grpc.streaming(picker, request).await)
        })
    }
}

impl StreamingService<Asked> for Picker {
    type Response = Answer;
    type ResponseStream = BoxStream<'static, Result<Answer, Status>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Asked>>) -> Self::Future {
        let picker = self.clone();
        let answers =
            request.into_inner().map(move |asked| asked.map(|asked| picker.answer(&asked)));
        ready(Ok(Response::new(answers.boxed())))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn answer_has_envoys_field_numbers() {
        // request_headers 1 { response 1 { header_mutation 2 { set_headers 1 { header 1 { key 1, raw_value 3 },
        // append_action 3 } } } }: tag bytes are number * 8 + 2, or + 0 for the enum.
        let bytes = Answer::steering_to("10.0.0.1:8").encode_to_vec();
        let key = STEERING_HEADER.len() as u8;
        let header = 2 + key + 2 + 10;
        let head = [
            0x0a,
            header + 10,
            0x0a,
            header + 8,
            0x12,
            header + 6,
            0x0a,
            header + 4,
            0x0a,
            header,
            0x0a,
            key,
        ];
        assert_eq!(bytes[..head.len()], head);
        assert_eq!(
            bytes[bytes.len() - 14..bytes.len() - 2],
            [b"\x1a\x0a".as_slice(), b"10.0.0.1:8"].concat()
        );
        assert_eq!(bytes[bytes.len() - 2..], [0x18, 2]);
    }

    #[test]
    fn endpoints_take_turns_and_other_messages_get_an_empty_answer() {
        let answers = ["a:1", "b:1"].map(Answer::steering_to);
        let picker = Picker { answers: Arc::new(answers.to_vec()), turn: Arc::default() };
        let headers = Asked { request_headers: Some(Nothing {}) };
        assert_eq!(picker.answer(&headers), answers[0]);
        assert_eq!(picker.answer(&Asked::default()), Answer::default());
        assert_eq!(picker.answer(&headers), answers[1]);
        assert_eq!(picker.answer(&headers), answers[0]);
    }
}
