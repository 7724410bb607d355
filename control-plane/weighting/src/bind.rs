//! Which reports speak for which endpoint.
//!
//! Discovery names endpoints and may name their GPUs; a workload in a report adds GPUs and engine
//! metrics. A report speaks only for GPUs of its own node, and where discovery names the node of an
//! endpoint only that node's reports are heard. Several reporters may share a node; for each GPU the
//! newest report counts.
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};

use tidegate_policy::units::{Span, Time};

use crate::{
    freshness::{age, fresh_limit},
    health::ReportedGpu,
    input::{DriverStatus, EndpointDefinition, Engine, GpuRef, GpuSample, NodeReport, Workload},
};

/// Node and UUID.
pub(crate) type GpuKey = (String, String);

/// The reports of one step, ready for look-ups.
pub(crate) struct Reports<'a> {
    /// Newest first within a node.
    nodes: BTreeMap<&'a str, Vec<&'a NodeReport>>,
    gpus: BTreeMap<GpuKey, ReportedGpu<'a>>,
    workloads: BTreeMap<&'a str, Vec<(&'a NodeReport, &'a Workload)>>,
}

/// What an endpoint is bound to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Binding {
    pub(crate) node: Option<String>,
    pub(crate) gpus: Vec<GpuKey>,
    /// Engine metrics that still count, and their age.
    pub(crate) engine: Option<(Engine, Span)>,
    /// GPUs that were asked for and that no report knows.
    pub(crate) missing: Vec<String>,
}

impl<'a> Reports<'a> {
    pub(crate) fn new(reports: &'a [NodeReport]) -> Self {
        let mut nodes: BTreeMap<&str, Vec<&NodeReport>> = BTreeMap::new();
        for report in reports {
            nodes.entry(report.node.as_str()).or_default().push(report);
        }
        let mut gpus = BTreeMap::new();
        let mut workloads: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for list in nodes.values_mut() {
            list.sort_by(|a, b| {
                b.received.cmp(&a.received).then_with(|| a.boot_id.cmp(&b.boot_id))
            });
            for report in list.iter() {
                for gpu in &report.gpus {
                    let key = (report.node.clone(), name_of(gpu));
                    gpus.entry(key).or_insert(ReportedGpu { report, gpu });
                }
                for workload in &report.workloads {
                    workloads
                        .entry(workload.endpoint.as_str())
                        .or_default()
                        .push((*report, workload));
                }
            }
        }
        for list in workloads.values_mut() {
            list.sort_by(|a, b| {
                b.0.received.cmp(&a.0.received).then_with(|| a.0.node.cmp(&b.0.node))
            });
        }
        Self { nodes, gpus, workloads }
    }

    pub(crate) fn gpus(&self) -> impl Iterator<Item = (&GpuKey, &ReportedGpu<'a>)> {
        self.gpus.iter()
    }

    pub(crate) fn gpu(&self, key: &GpuKey) -> Option<ReportedGpu<'a>> {
        self.gpus.get(key).copied()
    }

    /// The worst driver status that a node reports.
    pub(crate) fn driver(&self, node: &str) -> DriverStatus {
        let reports = self.nodes.get(node).into_iter().flatten();
        reports.map(|r| r.driver).max_by_key(|d| badness(*d)).unwrap_or_default()
    }

    /// How long the reports behind a binding have been silent, and their interval; the longest counts.
    pub(crate) fn silence(&self, now: Time, binding: &Binding) -> Option<(Span, Span)> {
        let of_gpus = binding.gpus.iter().filter_map(|key| self.gpu(key)).map(|g| g.report);
        let longest = of_gpus
            .map(|r| (now.since(r.received), r.interval))
            .max_by_key(|(silent, interval)| (*silent, *interval));
        longest.or_else(|| {
            let newest = *self.nodes.get(binding.node.as_deref()?)?.first()?;
            Some((now.since(newest.received), newest.interval))
        })
    }

    pub(crate) fn bind(&self, now: Time, endpoint: &EndpointDefinition) -> Binding {
        let workload = self.workload(endpoint);
        let node =
            endpoint.node.clone().or_else(|| workload.map(|(report, _)| report.node.clone()));
        let engine = workload.and_then(|(report, w)| {
            let engine = w.engine?;
            let age = age(now, report.received, engine.age);
            (age <= fresh_limit(report.interval)).then_some((engine.values, age))
        });
        let wanted: Vec<GpuRef> = if endpoint.gpus.is_empty() {
            let uuids = workload.map(|(_, w)| w.gpu_uuids.as_slice()).unwrap_or_default();
            uuids.iter().cloned().map(GpuRef::Uuid).collect()
        } else {
            endpoint.gpus.clone()
        };
        let (mut gpus, mut missing) = (BTreeSet::new(), BTreeSet::new());
        for gpu in wanted {
            match self.find(node.as_deref(), &gpu) {
                Some(key) => _ = gpus.insert(key),
                None => _ = missing.insert(shown(&gpu)),
            }
        }
        // A node that nobody hears of has no missing GPUs, only no data.
        let is_heard = node.as_deref().is_some_and(|n| self.nodes.contains_key(n));
        Binding {
            node,
            gpus: gpus.into_iter().collect(),
            engine,
            missing: if is_heard { missing.into_iter().collect() } else { Vec::new() },
        }
    }

    fn workload(&self, endpoint: &EndpointDefinition) -> Option<(&'a NodeReport, &'a Workload)> {
        let candidates = self.workloads.get(endpoint.address.as_str())?;
        candidates
            .iter()
            .find(|(report, w)| {
                (w.service.is_empty() || w.service == endpoint.service)
                    && endpoint.node.as_ref().is_none_or(|node| *node == report.node)
            })
            .copied()
    }

    fn find(&self, node: Option<&str>, wanted: &GpuRef) -> Option<GpuKey> {
        let is_wanted = |key: &GpuKey, gpu: &ReportedGpu<'_>| match wanted {
            GpuRef::Index(index) => gpu.gpu.index == *index,
            GpuRef::Uuid(uuid) => key.1 == *uuid,
        };
        match (node, wanted) {
            (Some(node), _) => self
                .gpus
                .iter()
                .filter(|(key, _)| key.0 == node)
                .find(|(key, gpu)| is_wanted(key, gpu))
                .map(|(key, _)| key.clone()),
            // An index means nothing without a node; a UUID is unique in the world.
            (None, GpuRef::Index(_)) => None,
            (None, GpuRef::Uuid(_)) => {
                self.gpus.iter().find(|(key, gpu)| is_wanted(key, gpu)).map(|(key, _)| key.clone())
            }
        }
    }
}

fn name_of(gpu: &GpuSample) -> String {
    if gpu.uuid.is_empty() { format!("index-{}", gpu.index) } else { gpu.uuid.clone() }
}

fn shown(gpu: &GpuRef) -> String {
    match gpu {
        GpuRef::Index(index) => format!("index-{index}"),
        GpuRef::Uuid(uuid) => uuid.clone(),
    }
}

fn badness(driver: DriverStatus) -> u8 {
    match driver {
        DriverStatus::Unknown => 0,
        DriverStatus::Ok => 1,
        DriverStatus::Failed => 2,
        DriverStatus::Mismatch => 3,
        DriverStatus::Absent => 4,
        DriverStatus::Hung => 5,
    }
}
