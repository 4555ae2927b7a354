//! Resource subscriptions and log levels of all sessions. Sessions of several profiles and principals share servers:
//! one that ends or changes its mind must not change what the others get.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use pegboard_core::id::ToolboxName;
use pegboard_runtime::requests::ServerId;
use pegboard_wire::era::{Era, LogLevel};
use pegboard_wire::server::ClientSessionId;

use crate::profile::ActiveProfile;

/// Log level of sessions that have asked for none.
const DEFAULT_LOG_LEVEL: LogLevel = LogLevel::Info;

/// Sessions by what they get from servers outside of calls.
#[derive(Default)]
pub(crate) struct ServerSubscribers {
    resources: Mutex<HashMap<SubscribedResource, HashSet<ClientSessionId>>>,
    log_levels: Mutex<HashMap<ClientSessionId, (Arc<ActiveProfile>, LogLevel)>>,
}

/// A resource at its server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SubscribedResource {
    pub(crate) server: ServerId,
    /// URI that the server knows it by.
    pub(crate) uri: String,
    /// Era of the subscribers: a server of both eras may have an instance for each.
    pub(crate) era: Era,
}

impl ServerSubscribers {
    /// Adds a subscription; returns `true` if the session did not have it.
    pub(crate) fn subscribe(&self, resource: &SubscribedResource, session: &ClientSessionId) -> bool {
        self.resources.lock().entry(resource.clone()).or_default().insert(session.clone())
    }

    /// Returns `true` if a client of either era is subscribed to a resource of a server.
    pub(crate) fn is_subscribed(&self, server: &ServerId, uri: &str) -> bool {
        let resources = self.resources.lock();
        [Era::Session, Era::Stateless].into_iter().any(|era| {
            let resource = SubscribedResource { server: server.clone(), uri: uri.to_owned(), era };
            resources.contains_key(&resource)
        })
    }

    /// Removes a subscription; returns `true` if it was the last one for the resource.
    pub(crate) fn unsubscribe(&self, resource: &SubscribedResource, session: &ClientSessionId) -> bool {
        let mut all = self.resources.lock();
        let Some(sessions) = all.get_mut(resource) else { return false };
        let is_last = sessions.remove(session) && sessions.is_empty();
        if sessions.is_empty() {
            all.remove(resource);
        }
        is_last
    }

    /// Removes the subscriptions of a session; returns the resources without remaining subscribers.
    pub(crate) fn unsubscribe_session(&self, session: &ClientSessionId) -> Vec<SubscribedResource> {
        let mut orphaned = Vec::new();
        self.resources.lock().retain(|resource, sessions| {
            if sessions.remove(session) && sessions.is_empty() {
                orphaned.push(resource.clone());
            }
            !sessions.is_empty()
        });
        orphaned
    }

    /// Sets the log level of a session of a profile.
    pub(crate) fn set_log_level(
        &self,
        session: &ClientSessionId,
        profile: &Arc<ActiveProfile>,
        level: LogLevel,
    ) {
        self.log_levels.lock().insert(session.clone(), (Arc::clone(profile), level));
    }

    /// Removes the log level of a session; returns `false` if the session never asked for one.
    pub(crate) fn remove_log_level(&self, session: &ClientSessionId) -> bool {
        self.log_levels.lock().remove(session).is_some()
    }

    /// Returns the log level that the servers of a toolbox need: the most verbose one of all sessions that can see
    /// the toolbox. Sessions that have asked for none get the default.
    pub(crate) fn log_level(&self, toolbox: &ToolboxName) -> LogLevel {
        let levels = self.log_levels.lock();
        let levels = levels.values().filter(|(profile, _)| profile.has_toolbox(toolbox));
        levels.map(|(_, level)| *level).fold(DEFAULT_LOG_LEVEL, LogLevel::min)
    }
}
