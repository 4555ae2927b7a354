//! A runtime, and the ways in which clients may see it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use indexmap::IndexMap;
use pegboard_core::id::ToolboxName;
use pegboard_core::settings::gateway::{Expose, GatewaySettings, Profile};
use pegboard_runtime::Runtime;
use pegboard_wire::server::Server;

use crate::endpoint::Endpoint;
use crate::profile::{Board, View};

/// The profiles that are there without being configured.
const BUILT_IN: [Expose; 5] = [Expose::Meta, Expose::Flat, Expose::Agent, Expose::Hybrid, Expose::Auto];
/// What stands beside every profile in a path, and so cannot be a profile.
const RESERVED: [&str; 3] = ["ws", "sse", "message"];

/// A runtime, and the ways in which clients may see it. Clones are the same gateway.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use pegboard_core::entry::ToolEntry;
/// use pegboard_core::provider::Local;
/// use pegboard_core::settings::gateway::GatewaySettings;
/// use pegboard_gateway::Gateway;
/// use pegboard_runtime::Runtime;
///
/// let double = ToolEntry::new("double", "Twice a number", |n: i64| async move { Ok(n * 2) });
/// let runtime = Runtime::builder().toolbox("math", "Numbers").provide("sums", Local::new([double])).start().await?;
/// let gateway = Gateway::new(&runtime, &GatewaySettings::default()).unwrap();
/// assert!(gateway.server(Some("flat")).is_ok());
/// assert!(gateway.server(Some("nowhere")).is_err());
/// # Ok::<(), pegboard_runtime::StartError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Gateway(Arc<Profiles>);

struct Profiles {
    runtime: Runtime,
    /// Who its clients are; empty if nobody in particular.
    principal: String,
    /// The same gateway to others.
    others: Mutex<Vec<Gateway>>,
    default: Arc<Endpoint>,
    /// Those that clients may name.
    named: ArcSwap<IndexMap<String, Arc<Endpoint>>>,
}

/// How the clients of every profile are to see the tools.
#[derive(Clone)]
pub struct Views {
    default: View,
    named: IndexMap<String, View>,
}

impl Views {
    /// What settings say, where these toolboxes are there.
    pub fn of(settings: &GatewaySettings, toolboxes: &BTreeSet<ToolboxName>) -> Result<Self, ProfileError> {
        let GatewaySettings { expose, pinned, transparent, profiles, listed } = settings;
        let view = |name: &str, profile: &Profile| {
            View::of(profile, listed, toolboxes)
                .map_err(|toolbox| ProfileError::Toolbox { profile: name.to_owned(), toolbox })
        };
        let usual = |expose: Expose| Profile {
            expose,
            pinned: pinned.clone(),
            transparent: *transparent,
            toolboxes: None,
        };
        let default = view("default", &usual(*expose))?;
        let mut named = IndexMap::new();
        for expose in BUILT_IN {
            let name = expose.as_str();
            named.insert(name.to_owned(), view(name, &usual(expose))?);
        }
        for (name, profile) in profiles {
            if !is_usable(name) {
                return Err(ProfileError::Name { profile: name.clone() });
            }
            named.insert(name.clone(), view(name, profile)?);
        }
        Ok(Self { default, named })
    }

    /// Whether clients may name this profile, or why they may not.
    pub fn check(&self, profile: &str) -> Result<(), ProfileError> {
        if self.named.contains_key(profile) {
            return Ok(());
        }
        let available = self.named.keys().cloned().collect();
        Err(ProfileError::Unknown { profile: profile.to_owned(), available })
    }
}

/// Why there is no such view of the tools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The name cannot be part of a path, or means something else there.
    #[error(
        "A profile cannot be called '{profile}'. Use letters, digits, '-' and '_', and none of: {}",
        RESERVED.join(", ")
    )]
    Name {
        /// The name.
        profile: String,
    },
    /// The profile names a toolbox that is not there.
    #[error(
        "Profile '{profile}' names the toolbox '{toolbox}', which is not configured. Take it out or configure it"
    )]
    Toolbox {
        /// The profile.
        profile: String,
        /// The toolbox.
        toolbox: ToolboxName,
    },
    /// There is no such profile.
    #[error("There is no profile '{profile}'. Profiles: {}", available.join(", "))]
    Unknown {
        /// What was asked for.
        profile: String,
        /// Those there are.
        available: Vec<String>,
    },
}

impl Gateway {
    /// The gateway to a runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(runtime: &Runtime, settings: &GatewaySettings) -> Result<Self, ProfileError> {
        let toolboxes = runtime.toolboxes().into_iter().map(|toolbox| toolbox.name).collect();
        Ok(Self::showing(runtime, "", Views::of(settings, &toolboxes)?))
    }

    /// The same gateway to somebody in particular. Nobody else finds their sessions, the calls that wait for their
    /// answers, their tasks and their stored answers.
    #[must_use]
    pub fn of(&self, principal: &str) -> Self {
        let mut others = self.0.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = others.iter().find(|other| other.0.principal == principal) {
            return known.clone();
        }
        let named = self.0.named.load();
        let named = named.iter().map(|(name, endpoint)| (name.clone(), View::clone(&endpoint.view())));
        let views = Views { default: View::clone(&self.0.default.view()), named: named.collect() };
        let new = Self::showing(&self.0.runtime, principal, views);
        others.push(new.clone());
        new
    }

    fn showing(runtime: &Runtime, principal: &str, views: Views) -> Self {
        let Views { default, named } = views;
        let endpoint = |name: &str, view| Endpoint::new(Arc::new(Board::new(runtime, principal, name, view)));
        let default = endpoint("default", default);
        let named: IndexMap<_, _> = named
            .into_iter()
            .map(|(name, view)| {
                let endpoint = endpoint(&name, view);
                (name, endpoint)
            })
            .collect();
        Self(Arc::new(Profiles {
            runtime: runtime.clone(),
            principal: principal.to_owned(),
            others: Mutex::default(),
            default,
            named: ArcSwap::from_pointee(named),
        }))
    }

    fn others(&self) -> Vec<Self> {
        self.0.others.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has clients see the tools in another way, without their leaving: each profile that was there before goes on with
    /// its clients, and one that is there no more takes in nobody else.
    pub fn show(&self, views: Views) {
        for other in self.others() {
            other.show(views.clone());
        }
        let Views { default, named } = views;
        self.0.default.show(default);
        let before = self.0.named.load_full();
        let now = named.into_iter().map(|(name, view)| {
            let endpoint = if let Some(endpoint) = before.get(&name) {
                endpoint.show(view);
                Arc::clone(endpoint)
            } else {
                let Profiles { runtime, principal, .. } = &*self.0;
                Endpoint::new(Arc::new(Board::new(runtime, principal, &name, view)))
            };
            (name, endpoint)
        });
        self.0.named.store(Arc::new(now.collect()));
    }

    /// Makes servers ready that have come since others were made ready for a list.
    pub fn warm_up_again(&self) {
        self.others().iter().for_each(Self::warm_up_again);
        self.0.default.warm_up_again();
        self.0.named.load().values().for_each(|endpoint| endpoint.warm_up_again());
    }

    /// One view of the tools, to be served; without a name the one that clients get who ask for none.
    ///
    /// Where a view lists tools by themselves, their servers are made ready now.
    pub fn server(&self, profile: Option<&str>) -> Result<Server, ProfileError> {
        let endpoint = match profile {
            None => Arc::clone(&self.0.default),
            Some(name) => self.endpoint(name).ok_or_else(|| self.unknown(name))?,
        };
        endpoint.start();
        Ok(Server::new(endpoint as _))
    }

    /// The names of the profiles there are.
    pub fn profiles(&self) -> Vec<String> {
        self.0.named.load().keys().cloned().collect()
    }

    /// What the clients of a profile are served by.
    pub(crate) fn endpoint(&self, profile: &str) -> Option<Arc<Endpoint>> {
        self.0.named.load().get(profile).cloned()
    }

    pub(crate) fn unknown(&self, profile: &str) -> ProfileError {
        ProfileError::Unknown { profile: profile.to_owned(), available: self.profiles() }
    }
}

/// Whether a profile can have this name.
fn is_usable(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.bytes().all(is_plain) && !RESERVED.contains(&name)
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("profiles", &self.profiles()).finish_non_exhaustive()
    }
}
