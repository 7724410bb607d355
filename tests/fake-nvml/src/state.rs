//! What the library remembers, and the gate that every call passes.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::scenario::{Code, Event, Gpu, Load, Scenario};

/// Codes that the gate itself gives.
pub(crate) const SUCCESS: Code = 0;
pub(crate) const UNINITIALIZED: Code = 1;
pub(crate) const INVALID_ARGUMENT: Code = 2;
pub(crate) const NOT_SUPPORTED: Code = 3;
pub(crate) const NOT_FOUND: Code = 6;
pub(crate) const INSUFFICIENT_SIZE: Code = 7;
pub(crate) const TIMEOUT: Code = 10;
pub(crate) const GPU_IS_LOST: Code = 15;
pub(crate) const ARGUMENT_VERSION_MISMATCH: Code = 25;

/// How often the files' times are looked at; a call costs no more than that.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// How often a call that hangs looks whether it may return.
const HANG_POLL: Duration = Duration::from_millis(10);

/// The scenario with the overlay applied.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) scenario: Scenario,
}

type Stamp = Option<(i64, i64, u64, u64)>;

#[derive(Default)]
struct State {
    references: u32,
    /// UUIDs by index and generation, as the client saw them when it initialised.
    order: Vec<String>,
    generation: u64,
    view: Arc<View>,
    base: Scenario,
    load: Load,
    looked: Option<Instant>,
    stamps: (Stamp, Stamp),
    delivered: BTreeMap<usize, u64>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(act: impl FnOnce(&mut State) -> T) -> T {
    let mut guard = lock();
    let state = guard.get_or_insert_default();
    state.refresh();
    act(state)
}

/// The scenario right now.
pub(crate) fn view() -> Arc<View> {
    with(|state| Arc::clone(&state.view))
}

impl State {
    fn refresh(&mut self) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let Some(path) = scenario_path() else { return };
        let stamp = stamp(&path);
        let mut changed = false;
        if stamp != self.stamps.0 {
            self.stamps.0 = stamp;
            changed |= read_into(&path, &mut self.base);
        }
        let load_path = self.base.load_file.as_ref().map(|name| beside(&path, name));
        let load_stamp = load_path.as_deref().and_then(self::stamp);
        if load_stamp != self.stamps.1 {
            self.stamps.1 = load_stamp;
            match &load_path {
                Some(load_path) if load_stamp.is_some() => {
                    changed |= read_into(load_path, &mut self.load);
                }
                _ => {
                    self.load = Load::default();
                    changed = true;
                }
            }
        }
        if changed {
            let mut scenario = self.base.clone();
            for (index, load) in &self.load.gpus {
                if let Some(gpu) = scenario.gpus.get_mut(*index) {
                    load.apply(gpu);
                }
            }
            self.view = Arc::new(View { scenario });
        }
    }
}

/// Half-written or wrong text leaves the old state and says so on stderr.
fn read_into<T: for<'de> serde::Deserialize<'de>>(path: &Path, place: &mut T) -> bool {
    let read = fs::read(path).map_err(|e| e.to_string());
    match read.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string())) {
        Ok(value) => {
            *place = value;
            true
        }
        Err(error) => {
            eprintln!("fake-nvml: {}: {error}", path.display());
            false
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the environment is this library's whole interface")]
fn scenario_path() -> Option<PathBuf> {
    std::env::var_os("TIDEGATE_FAKE_NVML").map(PathBuf::from)
}

fn stamp(path: &Path) -> Stamp {
    let meta = fs::metadata(path).ok()?;
    Some((meta.mtime(), meta.mtime_nsec(), meta.len(), meta.ino()))
}

fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().map_or_else(|| PathBuf::from(name), |folder| folder.join(name))
}

/// Milliseconds since this process started.
///
/// From the kernel, not from a static: the library may be loaded late and several times. Start time is
/// in ticks of 10 ms, the fixed user-space unit of Linux.
pub(crate) fn now_ms() -> u64 {
    let read = || {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        // The name in parentheses may hold blanks; starttime is the 20th word after it.
        let start: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        let (seconds, centis) = uptime.split_whitespace().next()?.split_once('.')?;
        let up = seconds.parse::<u64>().ok()? * 100 + centis.parse::<u64>().ok()?;
        Some(up.saturating_sub(start) * 10)
    };
    read().unwrap_or(0)
}

#[expect(clippy::disallowed_methods, reason = "a driver call that blocks has no other form")]
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Gate of calls that name no GPU: hang, then forced code.
pub(crate) fn system_gate(function: &str) -> Result<Arc<View>, Code> {
    loop {
        let view = view();
        let driver = &view.scenario.driver;
        if driver.hang.iter().any(|f| f == function) {
            pause(HANG_POLL);
            continue;
        }
        return match driver.fail.get(function) {
            Some(&code) if code != SUCCESS => Err(code),
            _ => Ok(view),
        };
    }
}

/// A successful initialisation: counts the client in and notes which GPU stands where.
pub(crate) fn init() -> Code {
    let view = match system_gate("nvmlInit_v2") {
        Ok(view) => view,
        Err(code) => return code,
    };
    let code = view.scenario.driver.init_rc;
    if code == SUCCESS {
        with(|state| {
            state.references += 1;
            state.order = view.scenario.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
            state.generation = view.scenario.driver.generation;
        });
    }
    code
}

pub(crate) fn shutdown() -> Code {
    if let Err(code) = system_gate("nvmlShutdown") {
        return code;
    }
    with(|state| {
        if state.references == 0 {
            return UNINITIALIZED;
        }
        state.references -= 1;
        SUCCESS
    })
}

/// UUIDs by index as this client sees them, or UNINITIALIZED.
pub(crate) fn order(view: &View) -> Result<Vec<String>, Code> {
    with(|state| {
        let current = state.generation == view.scenario.driver.generation;
        if state.references == 0 || !current {
            return Err(UNINITIALIZED);
        }
        Ok(state.order.clone())
    })
}

/// Index of the GPU and MIG slot (0 is the GPU itself) behind a handle.
pub(crate) const fn decode(handle: usize) -> Option<(usize, u32)> {
    if handle < 0x100 || handle > 0xffff {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "masked to eight bits")]
    Some(((handle >> 8) - 1, (handle & 0xff) as u32))
}

pub(crate) const fn encode(index: usize, slot: usize) -> usize {
    (index + 1) << 8 | slot
}

/// What a call on a GPU may look at.
pub(crate) struct Found {
    pub(crate) gpu: Gpu,
    pub(crate) index: usize,
    pub(crate) slot: u32,
}

/// Gate of calls on a GPU: hang, lost, unsupported, forced code, delay; in this order.
pub(crate) fn gpu_gate(handle: usize, function: &str) -> Result<Found, Code> {
    let (index, slot) = decode(handle).ok_or(INVALID_ARGUMENT)?;
    loop {
        let view = system_gate(function)?;
        let order = order(&view)?;
        let uuid = order.get(index).ok_or(INVALID_ARGUMENT)?;
        // Gone from the scenario but still in this client's list: fallen off the bus.
        let gpu = view.scenario.gpus.iter().find(|gpu| gpu.uuid == *uuid).ok_or(GPU_IS_LOST)?;
        if gpu.hang {
            pause(HANG_POLL);
            continue;
        }
        if gpu.lost {
            return Err(GPU_IS_LOST);
        }
        if gpu.unsupported.iter().any(|f| f == function) {
            return Err(NOT_SUPPORTED);
        }
        if let Some(&code) = gpu.fail.get(function).filter(|code| **code != SUCCESS) {
            return Err(code);
        }
        if let Some(ms) = gpu.delay_ms.get(function).or_else(|| gpu.delay_ms.get("*")) {
            pause(Duration::from_millis(*ms));
        }
        return Ok(Found { gpu: gpu.clone(), index, slot });
    }
}

/// The next event that is due and whose GPU `wants` accepts; each is given out once.
pub(crate) fn next_event(now_ms: u64, wants: impl Fn(usize) -> bool) -> Option<Event> {
    with(|state| {
        let view = Arc::clone(&state.view);
        for (place, event) in view.scenario.events.iter().enumerate() {
            let given = state.delivered.entry(place).or_default();
            let index = view
                .scenario
                .gpus
                .get(event.gpu)
                .and_then(|gpu| state.order.iter().position(|uuid| *uuid == gpu.uuid));
            if event.at_ms <= now_ms && *given < event.repeat && index.is_some_and(&wants) {
                *given += 1;
                return Some(Event { gpu: index.unwrap_or(event.gpu), ..event.clone() });
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_back_as_they_went() {
        for (index, slot) in [(0, 0), (0, 7), (63, 0), (63, 255)] {
            assert_eq!(decode(encode(index, slot)), Some((index, u32::try_from(slot).unwrap())));
        }
        assert_eq!(decode(0), None);
        assert_eq!(decode(usize::MAX), None);
    }

    #[test]
    fn time_counts_from_process_start() {
        // A test process is seconds old at most at this point, a machine is older.
        assert!(now_ms() < 600_000);
    }
}
