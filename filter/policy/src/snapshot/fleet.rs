//! The merged state, and how updates change it: all checks first, then all changes.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    sync::Arc,
    vec::Vec,
};

use super::{
    ENDPOINTS_MAX, EndpointUpdate, Extent, Hard, NAME_BYTES_MAX, SERVICES_MAX, ServiceUpdate,
    Update, UpdateRefused,
};
use crate::{
    address,
    units::{BasisPoints, PerMille, Span, Time, Weight},
};

/// Push periods outside this range are moved to its ends.
const PERIOD_MS_MIN: u64 = 50;
const PERIOD_MS_MAX: u64 = 60_000;
/// A new control plane's "up" without data does not undo a "down" for this long: reporters find it
/// within 15 s, and until then it knows nothing of what is broken.
const DOUBT_MAX: Span = Span::secs(30);

/// The merged state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    head: Option<Head>,
    services: BTreeMap<Arc<str>, Service>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    epoch: u64,
    instance: u64,
    period: Span,
    proxies_live: u32,
    received: Time,
}

/// A service of the merged state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    pub arrival_rate: Option<f64>,
    pub mean_service: Option<Span>,
    endpoints: BTreeMap<Arc<str>, Endpoint>,
}

/// An endpoint of the merged state; the fields are those of [`EndpointUpdate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    pub weight: Weight,
    pub in_flight: Option<u32>,
    pub slots: Option<u32>,
    pub gate: PerMille,
    pub success: Option<BasisPoints>,
    /// Age of the data at `listed`.
    pub age: Option<Span>,
    pub hard: Hard,
    pub node: Arc<str>,
    pub gpu_type: Arc<str>,
    pub type_weight: Weight,
    pub memory_free: Option<BasisPoints>,
    /// As of `listed`.
    pub healthy_for: Option<Span>,
    /// When the endpoint was last listed.
    pub listed: Time,
    /// Down by an earlier control plane's word, since the present one said "up" without data.
    doubted: Option<Time>,
}

impl Fleet {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Merges `update`, received at `now`.
    ///
    /// # Errors
    /// Why it was refused; then nothing has changed.
    pub fn apply(&mut self, now: Time, update: Update) -> Result<(), UpdateRefused> {
        self.check_order(&update)?;
        self.check_contents(&update)?;
        let is_successor = self.head.is_some_and(|head| head.instance != update.instance);
        self.head = Some(Head {
            epoch: update.epoch,
            instance: update.instance,
            period: Span::ms(update.period.as_ms().clamp(PERIOD_MS_MIN, PERIOD_MS_MAX)),
            proxies_live: update.proxies_live,
            received: now,
        });
        let mut before = match update.extent {
            Extent::Full => core::mem::take(&mut self.services),
            Extent::Changes => BTreeMap::new(),
        };
        for name in &update.services_removed {
            self.services.remove(name.as_str());
        }
        for service in update.services {
            let mut before = before.remove(service.name.as_str()).unwrap_or_default();
            let name = Arc::from(service.name.as_str());
            let merged = self.services.entry(name).or_default();
            merged.merge(now, service, |address, says| {
                doubt(now, is_successor, before.endpoints.remove(address)?, says)
            });
        }
        Ok(())
    }

    fn check_order(&self, update: &Update) -> Result<(), UpdateRefused> {
        match (self.head, update.extent) {
            (Some(head), Extent::Full) if head.instance == update.instance => {
                // After a reconnect the same state comes again; it confirms, so it is taken.
                if update.epoch < head.epoch {
                    return Err(UpdateRefused::Old { epoch: update.epoch, have: head.epoch });
                }
                Ok(())
            }
            (Some(head), Extent::Changes) if head.instance == update.instance => {
                if update.epoch <= head.epoch {
                    return Err(UpdateRefused::Old { epoch: update.epoch, have: head.epoch });
                }
                Ok(())
            }
            (_, Extent::Full) => Ok(()),
            (_, Extent::Changes) => Err(UpdateRefused::NoBase { instance: update.instance }),
        }
    }

    fn check_contents(&self, update: &Update) -> Result<(), UpdateRefused> {
        let mut names = BTreeSet::new();
        let mut services_after = match update.extent {
            Extent::Full => 0,
            Extent::Changes => {
                let removed: BTreeSet<&str> =
                    update.services_removed.iter().map(String::as_str).collect();
                self.services.keys().filter(|name| !removed.contains(&***name)).count()
            }
        };
        for service in &update.services {
            check_name(&service.name, 1)?;
            if !names.insert(service.name.as_str()) {
                return Err(UpdateRefused::Twice);
            }
            let before = match update.extent {
                Extent::Full => None,
                Extent::Changes => {
                    let removed = update.services_removed.contains(&service.name);
                    self.services.get(service.name.as_str()).filter(|_| !removed)
                }
            };
            if before.is_none() {
                services_after = services_after.saturating_add(1);
            }
            check_endpoints(before, service)?;
        }
        if services_after > SERVICES_MAX {
            return Err(UpdateRefused::TooManyServices { limit: SERVICES_MAX });
        }
        Ok(())
    }

    /// The service called `name`.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.get(name)
    }

    /// All services in the order of their names.
    pub fn services(&self) -> impl Iterator<Item = (&Arc<str>, &Service)> {
        self.services.iter()
    }

    /// Time since the newest update came; `None` before the first.
    #[must_use]
    pub fn age(&self, now: Time) -> Option<Span> {
        self.head.map(|head| now.since(head.received))
    }

    /// When the newest update came.
    #[must_use]
    pub fn received(&self) -> Option<Time> {
        self.head.map(|head| head.received)
    }

    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        self.head.map(|head| head.epoch)
    }

    #[must_use]
    pub fn instance(&self) -> Option<u64> {
        self.head.map(|head| head.instance)
    }

    /// Push period; 500 ms before the first update.
    #[must_use]
    pub fn period(&self) -> Span {
        self.head.map_or(Span::ms(500), |head| head.period)
    }

    #[must_use]
    pub fn proxies_live(&self) -> u32 {
        self.head.map_or(0, |head| head.proxies_live)
    }

    /// The whole state as one full update, with ages as of `now`; `None` before the first update.
    ///
    /// One worker receives, the others read what it shares; this is what it shares.
    #[must_use]
    pub fn export(&self, now: Time) -> Option<Update> {
        let head = self.head?;
        let services = self.services.iter().map(|(name, service)| ServiceUpdate {
            name: String::from(&**name),
            arrival_rate: service.arrival_rate,
            endpoints: service
                .endpoints
                .iter()
                .map(|(address, e)| EndpointUpdate {
                    address: String::from(&**address),
                    weight: e.weight,
                    in_flight: e.in_flight,
                    slots: e.slots,
                    gate: e.gate,
                    success: e.success,
                    age: e.data_age(now),
                    hard: e.hard,
                    node: String::from(&*e.node),
                    gpu_type: String::from(&*e.gpu_type),
                    type_weight: e.type_weight,
                    memory_free: e.memory_free,
                    healthy_for: e.healthy_for.map(|span| span.plus(now.since(e.listed))),
                })
                .collect(),
            endpoints_removed: Vec::new(),
            mean_service: service.mean_service,
        });
        Some(Update {
            epoch: head.epoch,
            instance: head.instance,
            period: head.period,
            proxies_live: head.proxies_live,
            extent: Extent::Full,
            services: services.collect(),
            services_removed: Vec::new(),
        })
    }
}

impl Endpoint {
    /// Age of the data at `now`; `None`: there is none.
    #[must_use]
    pub fn data_age(&self, now: Time) -> Option<Span> {
        self.age.map(|age| age.plus(now.since(self.listed)))
    }
}

impl Service {
    /// The endpoint called `address`.
    #[must_use]
    pub fn endpoint(&self, address: &str) -> Option<&Endpoint> {
        self.endpoints.get(address)
    }

    /// All endpoints in the order of their addresses.
    pub fn endpoints(&self) -> impl Iterator<Item = (&Arc<str>, &Endpoint)> {
        self.endpoints.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.endpoints.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    fn merge(
        &mut self,
        now: Time,
        update: ServiceUpdate,
        mut doubt: impl FnMut(&str, &EndpointUpdate) -> Option<Time>,
    ) {
        // A rate that is no number, or negative, says nothing.
        self.arrival_rate = update.arrival_rate.filter(|r| r.is_finite() && *r >= 0.0);
        self.mean_service = update.mean_service.filter(|span| *span > Span::ZERO);
        for address in update.endpoints_removed {
            if let Some(address) = address::canonical(&address) {
                self.endpoints.remove(address.as_str());
            }
        }
        for e in update.endpoints {
            let Some(address) = address::canonical(&e.address) else { continue };
            let doubted = doubt(&address, &e);
            let endpoint = Endpoint {
                weight: e.weight,
                in_flight: e.in_flight,
                slots: e.slots.filter(|slots| *slots > 0),
                gate: e.gate,
                success: e.success,
                age: e.age,
                hard: if doubted.is_some() { Hard::Down } else { e.hard },
                node: Arc::from(e.node),
                gpu_type: Arc::from(e.gpu_type),
                type_weight: e.type_weight,
                memory_free: e.memory_free,
                healthy_for: e.healthy_for,
                listed: now,
                doubted,
            };
            self.endpoints.insert(Arc::from(address), endpoint);
        }
    }
}

/// Since when `says` is not believed against what `was` in force.
fn doubt(now: Time, is_successor: bool, was: Endpoint, says: &EndpointUpdate) -> Option<Time> {
    if was.hard != Hard::Down || says.hard != Hard::Up || says.age.is_some() {
        return None;
    }
    let since = was.doubted.or(is_successor.then_some(now))?;
    (now.since(since) <= DOUBT_MAX).then_some(since)
}

fn check_endpoints(before: Option<&Service>, update: &ServiceUpdate) -> Result<(), UpdateRefused> {
    let too_many = UpdateRefused::TooManyEndpoints { limit: ENDPOINTS_MAX };
    if update.endpoints.len() > ENDPOINTS_MAX {
        return Err(too_many);
    }
    let mut removed = BTreeSet::new();
    for address in &update.endpoints_removed {
        removed.insert(address::canonical(address).ok_or(UpdateRefused::Address)?);
    }
    let mut listed = BTreeSet::new();
    for endpoint in &update.endpoints {
        let address = address::canonical(&endpoint.address).ok_or(UpdateRefused::Address)?;
        if !listed.insert(address) {
            return Err(UpdateRefused::Twice);
        }
        check_name(&endpoint.node, 0)?;
        check_name(&endpoint.gpu_type, 0)?;
    }
    let kept = before.map_or(0, |service| {
        let stays = |a: &&Arc<str>| !removed.contains(&***a) && !listed.contains(&***a);
        service.endpoints.keys().filter(stays).count()
    });
    if kept.saturating_add(listed.len()) > ENDPOINTS_MAX {
        return Err(too_many);
    }
    Ok(())
}

fn check_name(name: &str, len_min: usize) -> Result<(), UpdateRefused> {
    if (len_min..=NAME_BYTES_MAX).contains(&name.len()) {
        Ok(())
    } else {
        Err(UpdateRefused::Name { limit_bytes: NAME_BYTES_MAX })
    }
}
