//! The listener for people and tools: health, metrics, and the state as JSON.
//!
//! On 127.0.0.1 unless configured otherwise; it shows names and addresses, never content of requests.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200 while the process runs |
//! | `/readyz` | 200 when proxies are served, else 503 with the reasons |
//! | `/metrics` | OpenMetrics text |
//! | `/api/fleet` | [`view::FleetView`] |
//! | `/api/explain?endpoint=ip:port` | [`view::ExplainView`] |

pub mod explain;
pub mod view;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{core::Core, metrics::expose, text};

/// Serves until the process stops.
///
/// # Errors
/// The listener failed.
pub async fn serve(core: Arc<Core>, listener: TcpListener) -> std::io::Result<()> {
    let stop = core.stop.clone();
    axum::serve(listener, router(core)).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn router(core: Arc<Core>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/api/fleet", get(fleet))
        .route("/api/explain", get(explain_endpoint))
        .fallback(async || error(StatusCode::NOT_FOUND, "no such path"))
        .with_state(core)
}

async fn ready(State(core): State<Arc<Core>>) -> Response {
    let reasons = core.not_ready();
    if reasons.is_empty() {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n"))).into_response()
}

async fn metrics(State(core): State<Arc<Core>>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match expose::text_of(&core) {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(failed) => error(StatusCode::INTERNAL_SERVER_ERROR, &failed.to_string()),
    }
}

async fn fleet(State(core): State<Arc<Core>>) -> Response {
    Json(view::of(&core)).into_response()
}

async fn explain_endpoint(
    State(core): State<Arc<Core>>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let Some(endpoint) = query.get("endpoint") else {
        return error(StatusCode::BAD_REQUEST, "endpoint: is missing; expected ip:port");
    };
    match explain::of(&core, endpoint) {
        Some(view) => Json(view).into_response(),
        None => {
            let shown = text::cut(endpoint, core.config.limits.text_bytes);
            error(StatusCode::NOT_FOUND, &format!("endpoint: {shown:?} is not in discovery"))
        }
    }
}

fn error(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}

#[cfg(test)]
mod tests;
