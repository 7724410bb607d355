//! Asks a running control plane.

use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, body::Bytes};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::AskArgs;
use crate::text;

/// Largest answer read: the state of 50,000 endpoints takes about 30 MB.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The control plane gave no usable answer.
#[derive(Debug, thiserror::Error)]
#[error("{url} cannot be reached: {reason}")]
pub(super) struct Unreachable {
    url: String,
    reason: String,
}

/// Asks for a path and reads the JSON answer.
pub(super) fn ask<T: DeserializeOwned>(args: &AskArgs, path: &str) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let url = format!("{}{path}", args.admin.trim_end_matches('/'));
    if !url.starts_with("http://") {
        bail!("--admin: {:?} is outside http://host:port", args.admin);
    }
    let wait = Duration::from_millis(args.timeout_ms);
    let unreachable = |reason: String| Unreachable { url: args.admin.clone(), reason };
    let (status, body) = runtime
        .block_on(async { timeout(wait, get(&url)).await })
        .map_err(|_| unreachable(format!("no answer within {} ms", args.timeout_ms)))??;
    if status == StatusCode::OK {
        let value = serde_json::from_slice(&body);
        return value
            .with_context(|| format!("{url}: the answer is not what this version expects"));
    }
    let error: Option<String> = serde_json::from_slice::<serde_json::Value>(&body)
        .ok()
        .and_then(|v| v.get("error")?.as_str().map(Into::into));
    match error {
        Some(error) if status.is_client_error() => bail!("{}", text::cut(&error, 500)),
        _ => Err(unreachable(format!("it answered {status}")).into()),
    }
}

async fn get(url: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let request = Request::get(url).body(Empty::<Bytes>::new()).context("--admin: is no URL")?;
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let answer = client
        .request(request)
        .await
        .map_err(|e| Unreachable { url: url.into(), reason: cause(&e) })?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|e| Unreachable { url: url.into(), reason: e.to_string() })?;
    Ok((status, body.to_bytes()))
}

/// The innermost cause, which is what a person can act on.
fn cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
