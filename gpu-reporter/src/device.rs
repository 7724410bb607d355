//! One GPU: which of the driver's calls work on it. The tiers read its figures in `fast` and `medium`.
//!
//! Each figure is a list of ways to get it, newest symbol first. A way that a GPU does not support is
//! remembered and not asked again until the slow tier asks everything anew, since drivers are known to
//! answer blank after an error until asked again. One figure that fails never hides the others; only a
//! lost GPU and a void handle end the reading early. What cannot be true is unknown, see `plausible`.

mod fast;
mod medium;
mod plausible;
mod slow;

use std::{collections::BTreeSet, time::Instant};

use crate::{
    nvml::{Code, Failure, FieldValue, Function, Handle, Session},
    sample::Identity,
};

pub use fast::Fast;
pub use medium::{Listing, Medium};
use slow::Limits;

pub struct Device {
    handle: Handle,
    pub identity: Identity,
    silent: BTreeSet<(Function, &'static str)>,
    silent_fields: BTreeSet<u32>,
    /// Figures that no way gives on this GPU, by the name of the newest one.
    unsupported: BTreeSet<String>,
    limits: Limits,
    energy_mj: Option<u64>,
    pcie_before: Option<(Instant, u64, u64)>,
    mig_before: Option<bool>,
}

/// One way to get a figure: the function, what it is asked for if it can be asked for several things,
/// and the call.
struct Way<T> {
    function: Function,
    subject: &'static str,
    ask: fn(&Session, Handle) -> Result<T, Failure>,
}

const fn way<T>(function: Function, ask: fn(&Session, Handle) -> Result<T, Failure>) -> Way<T> {
    Way { function, subject: "", ask }
}

const fn way_for<T>(
    function: Function,
    subject: &'static str,
    ask: fn(&Session, Handle) -> Result<T, Failure>,
) -> Way<T> {
    Way { function, subject, ask }
}

impl<T> Way<T> {
    fn name(&self) -> String {
        if self.subject.is_empty() {
            self.function.name().into()
        } else {
            format!("{}:{}", self.function.name(), self.subject)
        }
    }
}

impl Device {
    /// Opens the GPU at `index` and asks who it is.
    ///
    /// # Errors
    /// Only when the GPU cannot be opened or is lost; a GPU without a readable UUID is named by index.
    pub fn attach(session: &Session, index: u32) -> Result<Self, Failure> {
        use Function as F;
        let handle = session.handle(index)?;
        let mut device = Self {
            handle,
            identity: Identity { index, ..Identity::default() },
            silent: BTreeSet::new(),
            silent_fields: BTreeSet::new(),
            unsupported: BTreeSet::new(),
            limits: Limits::default(),
            energy_mj: None,
            pcie_before: None,
            mig_before: None,
        };
        let uuid = device.figure(session, [way(F::nvmlDeviceGetUUID, Session::uuid)])?;
        // A GPU lost from here on has a name to be reported under; the next call says that it is lost.
        let name = device.figure(session, [way(F::nvmlDeviceGetName, Session::name)]);
        let pci = device.figure(session, [way(F::nvmlDeviceGetPciInfo_v3, Session::pci_bus_id)]);
        let architecture =
            device.figure(session, [way(F::nvmlDeviceGetArchitecture, Session::architecture)]);
        let identity = &mut device.identity;
        let uuid = uuid.map(|text| plausible::name(&text)).filter(|name| !name.is_empty());
        identity.uuid = uuid.unwrap_or_else(|| placeholder(index));
        identity.name = plausible::text(&unless_lost(name)?.unwrap_or_default());
        identity.pci_bus_id = plausible::text(&unless_lost(pci)?.unwrap_or_default());
        identity.architecture =
            unless_lost(architecture)?.map(architecture_name).unwrap_or_default();
        Ok(device)
    }

    /// Whether the handle still means the same GPU; `false` asks for a new opening of the library.
    ///
    /// # Errors
    /// As the driver says, when that is not about the handle.
    pub fn is_same(&self, session: &Session) -> Result<bool, Failure> {
        if is_placeholder(&self.identity.uuid) {
            return Ok(true);
        }
        match session.uuid(self.handle) {
            Ok(uuid) => Ok(plausible::name(&uuid) == self.identity.uuid),
            Err(Failure::Stale(_) | Failure::Other(Code(2))) => Ok(false),
            Err(failure @ (Failure::Lost(_) | Failure::Abandoned)) => Err(failure),
            Err(Failure::Unsupported(_) | Failure::Other(_)) => Ok(true),
        }
    }

    /// Names of the calls that give nothing on this GPU.
    #[must_use]
    pub fn unsupported(&self) -> Vec<String> {
        let fields = self.silent_fields.iter().map(|id| format!("field:{id}"));
        self.unsupported.iter().cloned().chain(fields).collect()
    }

    /// The first of `ways` that gives a value; `None` if none does.
    fn figure<T, const N: usize>(
        &mut self,
        session: &Session,
        ways: [Way<T>; N],
    ) -> Result<Option<T>, Failure> {
        let mut transient = false;
        for way in &ways {
            let key = (way.function, way.subject);
            if self.silent.contains(&key) {
                continue;
            }
            match (way.ask)(session, self.handle) {
                Ok(value) => {
                    self.note(ways.first(), Support::Given);
                    return Ok(Some(value));
                }
                Err(Failure::Unsupported(_)) => {
                    self.silent.insert(key);
                }
                Err(Failure::Other(_)) => transient = true,
                Err(failure) => return Err(failure),
            }
        }
        if !transient {
            self.note(ways.first(), Support::Absent);
        }
        Ok(None)
    }

    fn note<T>(&mut self, newest: Option<&Way<T>>, support: Support) {
        match (newest, support) {
            (Some(way), Support::Given) if !self.unsupported.is_empty() => {
                self.unsupported.remove(&way.name());
            }
            (Some(way), Support::Absent) => {
                self.unsupported.insert(way.name());
            }
            (_, Support::Given) | (None, Support::Absent) => {}
        }
    }

    fn fields<const N: usize>(
        &mut self,
        session: &Session,
        ids: [u32; N],
    ) -> Result<[Option<FieldValue>; N], Failure> {
        const ALL: Function = Function::nvmlDeviceGetFieldValues;
        let silent = self.silent.contains(&(ALL, ""));
        if silent || ids.iter().all(|id| self.silent_fields.contains(id)) {
            return Ok([None; N]);
        }
        let answers = match session.fields(self.handle, ids) {
            Ok(answers) => answers,
            Err(Failure::Unsupported(_)) => {
                self.silent.insert((ALL, ""));
                self.unsupported.insert(ALL.name().into());
                return Ok([None; N]);
            }
            Err(Failure::Other(_)) => return Ok([None; N]),
            Err(failure) => return Err(failure),
        };
        self.unsupported.remove(ALL.name());
        for (id, answer) in ids.iter().zip(&answers) {
            if matches!(answer, Err(Failure::Unsupported(_))) {
                self.silent_fields.insert(*id);
            }
        }
        Ok(answers.map(Result::ok))
    }

    fn forget_unsupported(&mut self) {
        self.silent.clear();
        self.silent_fields.clear();
    }
}

#[derive(Clone, Copy)]
enum Support {
    Given,
    Absent,
}

fn unless_lost<T>(answer: Result<Option<T>, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Err(Failure::Lost(_)) => Ok(None),
        other => other,
    }
}

/// A group in which nothing is known is no group.
fn some_of<T: Default + PartialEq>(group: T) -> Option<T> {
    (group != T::default()).then_some(group)
}

fn small(value: Option<FieldValue>) -> Option<u32> {
    value.and_then(FieldValue::unsigned).and_then(|v| u32::try_from(v).ok())
}

/// Name of a GPU that has not told its UUID.
#[must_use]
pub fn placeholder(index: u32) -> String {
    format!("index-{index}")
}

#[must_use]
pub fn is_placeholder(uuid: &str) -> bool {
    uuid.starts_with("index-")
}

/// A number newer than this list is data, not an error.
fn architecture_name(number: u32) -> String {
    let name = match number {
        2 => "kepler",
        3 => "maxwell",
        4 => "pascal",
        5 => "volta",
        6 => "turing",
        7 => "ampere",
        8 => "ada",
        9 => "hopper",
        10 => "blackwell",
        newer => return format!("unknown-{newer}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Utilization;

    #[test]
    fn an_architecture_newer_than_the_list_is_named_by_number() {
        assert_eq!(architecture_name(9), "hopper");
        assert_eq!(architecture_name(11), "unknown-11");
    }

    #[test]
    fn a_group_without_a_known_figure_is_absent() {
        assert_eq!(some_of(Utilization::default()), None);
        let zero = Utilization { sm_percent: Some(0), ..Utilization::default() };
        assert_eq!(some_of(zero), Some(zero));
    }

    #[test]
    fn two_subjects_of_one_function_are_two_ways() {
        let clock = |subject| way_for(Function::nvmlDeviceGetClockInfo, subject, Session::sm_clock);
        assert_eq!(clock("sm").name(), "nvmlDeviceGetClockInfo:sm");
        assert_eq!(way(Function::nvmlDeviceGetName, Session::name).name(), "nvmlDeviceGetName");
    }
}
