//! The reporter's own pages: `/healthz`, `/readyz`, `/metrics`.
//!
//! Health is that this loop runs, and nothing else: a hung driver must be reported, not cured by a
//! restart that loses what is known. Ready is that the control plane takes reports and the driver answers.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::net::TcpListener;

use crate::{
    metrics::{self, Own},
    sample::DriverStatus,
    uplink::{Sources, UplinkCounts},
};

/// What the pages show.
#[derive(Clone)]
pub struct Pages {
    pub sources: Sources,
    pub counts: Arc<UplinkCounts>,
    /// Scrapes of model servers that gave nothing.
    pub scrape_failures: Arc<std::sync::atomic::AtomicU64>,
    pub has_control_plane: bool,
}

/// Takes the address, so that a taken one is an error at the start.
///
/// # Errors
/// The address cannot be listened on.
pub async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves for ever.
pub async fn serve(listener: TcpListener, pages: Pages) {
    let app = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_page))
        .with_state(pages);
    if let Err(error) = axum::serve(listener, app).await {
        tracing::error!(%error, "own pages ended");
    }
}

async fn ready(State(pages): State<Pages>) -> (StatusCode, String) {
    let driver = pages.sources.shared.board.driver();
    let connected = !pages.has_control_plane || pages.counts.connected.load(Ordering::Relaxed);
    let mut why = Vec::new();
    if !connected {
        why.push("control plane: not connected".into());
    }
    if driver.status != DriverStatus::Ok {
        why.push(format!("driver: {} {}", driver.status.as_str(), driver.detail));
    }
    if why.is_empty() {
        (StatusCode::OK, "ready\n".into())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, why.join("\n") + "\n")
    }
}

async fn metrics_page(State(pages): State<Pages>) -> impl IntoResponse {
    let own = Own {
        counts: &pages.counts,
        scrape_failures: pages.scrape_failures.load(Ordering::Relaxed),
        has_control_plane: pages.has_control_plane,
    };
    let text = metrics::page(&pages.sources, &own);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}
