//! One VM: its configuration, and the callbacks that belong to no request.
//!
//! A configuration with errors is never in force and never reported to Envoy, which would answer every
//! request with 500. The last good one stays, by way of shared data; without one, requests pass as if
//! the filter were not there.

use crate::host;
use crate::http::Request;
use crate::settings;
use crate::stats::{Metric, Stats};
use crate::upstream::grpc_service;
use crate::wire::ConfigState;
use crate::worker::{Running, Worker};
use core::time::Duration;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use std::rc::Rc;
use tidegate_policy::chance::Chance;
use tidegate_policy::config::Config;

/// Counters reach the other workers, and a silent stream is noticed, to this precision.
const TICK: Duration = Duration::from_millis(50);
/// Shared data outlives the VM and, on a hot update, the module: its keys carry the format's version.
pub(crate) const KEYS: &str = "tidegate.1.";

/// The root context.
#[derive(Default)]
pub(crate) struct Root {
    running: Option<Running>,
}

/// The state of the newest configuration, which another VM may have refused.
pub(crate) fn config_state(plugin: &str) -> (ConfigState, String) {
    let (note, _) = host::shared(&state_key(plugin));
    let Some((state, error)) = note.split_first() else {
        return (ConfigState::Unspecified, String::new());
    };
    let state = ConfigState::try_from(i32::from(*state)).unwrap_or_default();
    (state, String::from_utf8_lossy(error).into_owned())
}

fn state_key(plugin: &str) -> String {
    format!("{KEYS}config.state.{plugin}")
}

/// The configuration to run by: the given one, else the last good one of this plugin.
fn configure(plugin: &str, bytes: &[u8]) -> Option<(Config, String)> {
    let kept = format!("{KEYS}config.{plugin}");
    let (config, state, error) = match settings::read(bytes).and_then(usable) {
        Ok(config) => {
            host::share(&kept, bytes, None);
            (Some(config), ConfigState::Ok, String::new())
        }
        Err(error) => match settings::read(&host::shared(&kept).0).and_then(usable) {
            Ok(config) => (Some(config), ConfigState::LastGood, error),
            Err(_) => (None, ConfigState::PassThrough, error),
        },
    };
    let note = [&[state as u8][..], error.as_bytes()].concat();
    // Every VM comes here; the first one logs.
    if state != ConfigState::Ok && host::shared(&state_key(plugin)).0 != note {
        let instead = if config.is_some() { "the last good one stays" } else { "requests pass" };
        log::error!("configuration refused, {instead}: {error}");
    }
    host::share(&state_key(plugin), &note, None);
    Stats::default().set(Metric::ConfigState, None, state as u64);
    config
}

/// A configuration with the name of its control plane as Envoy takes it.
fn usable(config: Config) -> Result<(Config, String), String> {
    let plane = &config.control_plane;
    match grpc_service(&plane.cluster, &plane.authority) {
        Some(upstream) => Ok((config, upstream)),
        None => Err("control_plane: Envoy cannot be told this cluster and authority".into()),
    }
}

impl Context for Root {
    /// The plugin was replaced: another VM may lead at once.
    fn on_done(&mut self) -> bool {
        if let Some(running) = &mut self.running {
            running.resign();
        }
        true
    }

    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        if let Some(running) = &mut self.running
            && let Ok(mut worker) = running.worker.try_borrow_mut()
        {
            running.watch.receive(token, size, host::now(), &mut worker.stats);
        }
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        if let Some(running) = &mut self.running
            && let Ok(mut worker) = running.worker.try_borrow_mut()
        {
            let Worker { chance, stats, .. } = &mut *worker;
            running.watch.closed(token, status, host::now(), chance, stats);
        }
    }
}

impl RootContext for Root {
    /// Never false, whatever the configuration.
    fn on_configure(&mut self, size: usize) -> bool {
        // One byte over the limit is enough to refuse.
        let bytes = host::configuration(size.min(settings::SETTINGS_BYTES_MAX + 1));
        let plugin = host::property(&["plugin_name"]).unwrap_or_default();
        let plugin = String::from_utf8_lossy(&plugin).into_owned();
        let me = Chance::seeded(host::entropy()).bits();
        self.running = configure(&plugin, &bytes)
            .map(|(config, upstream)| Running::new(me, plugin, config, upstream));
        host::tick_every(TICK);
        true
    }

    fn on_tick(&mut self) {
        if let Some(running) = &mut self.running {
            running.tick();
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        let worker = self.running.as_ref().map(|running| Rc::clone(&running.worker));
        Some(Box::new(Request::new(worker)))
    }
}
