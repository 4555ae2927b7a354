//! Owners of stored data.
//!
//! Everything that a principal leaves behind has an [`Owner`]. A store reads and lists within an [`OwnerScope`],
//! which has no default: a query that forgets the owner does not compile.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use serde::{Deserialize, Serialize};

/// Name of the principal of a gateway without authentication, and of its operator.
pub const LOCAL_PRINCIPAL: &str = "local";

static LOCAL: LazyLock<Owner> = LazyLock::new(|| Owner::in_tenant("", LOCAL_PRINCIPAL));

/// Owner of data: a principal within its tenant. Cloning does not allocate.
///
/// ```
/// use pegboard_core::owner::Owner;
///
/// let ann = Owner::in_tenant("a:b", "ann");
/// assert_eq!((ann.tenant(), ann.principal()), ("a:b", "ann"));
/// assert_eq!(Owner::from_stored(ann.as_str()), ann);
/// assert_eq!(Owner::default(), Owner::local());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Owner(Arc<str>);

impl Owner {
    /// Returns the owner of a principal without a tenant. A principal without a name is [local](Self::local).
    pub fn new(principal: &str) -> Self {
        if principal.is_empty() { Self::local() } else { Self::in_tenant("", principal) }
    }

    /// Returns the owner of a principal of a tenant.
    pub fn in_tenant(tenant: &str, principal: &str) -> Self {
        // The length prefix separates tenant and principal unambiguously.
        Self(format!("{}:{tenant}:{principal}", tenant.len()).into())
    }

    /// Returns the principal of a gateway without authentication, which is also its operator.
    pub fn local() -> Self {
        LOCAL.clone()
    }

    /// Returns the owner with this [text](Self::as_str), as a store has kept it.
    pub fn from_stored(text: &str) -> Self {
        if text == &*LOCAL.0 { Self::local() } else { Self(text.into()) }
    }

    /// Returns the text under which a store keeps the owner.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the principal.
    pub fn principal(&self) -> &str {
        self.parts().1
    }

    /// Returns the tenant; empty if there is none.
    pub fn tenant(&self) -> &str {
        self.parts().0
    }

    fn parts(&self) -> (&str, &str) {
        let split = || {
            let (length, rest) = self.0.split_once(':')?;
            let (tenant, principal) = rest.split_at_checked(length.parse().ok()?)?;
            Some((tenant, principal.strip_prefix(':')?))
        };
        split().unwrap_or(("", &self.0))
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::local()
    }
}

impl From<String> for Owner {
    fn from(text: String) -> Self {
        Self::from_stored(&text)
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> Self {
        owner.as_str().to_owned()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Owners with visible data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerScope {
    /// All owners: the view of the operator.
    All,
    /// One owner. The data of others does not exist.
    Only(Owner),
}

impl OwnerScope {
    /// Returns `true` if the data of an owner is visible.
    pub fn includes(&self, owner: &Owner) -> bool {
        self.includes_stored(owner.as_str())
    }

    /// Returns `true` if data that a store keeps under this text is visible.
    pub fn includes_stored(&self, owner: &str) -> bool {
        self.only().is_none_or(|only| only.as_str() == owner)
    }

    /// Returns the only owner with visible data; `None` for all.
    pub fn only(&self) -> Option<&Owner> {
        match self {
            Self::All => None,
            Self::Only(owner) => Some(owner),
        }
    }
}

/// Record of whether more than one principal uses a runtime and its providers. Clones share it.
///
/// While there is only one principal, it sees what no call owns, such as what a server logs on its own account.
/// From the second one on, that is for the operator alone.
///
/// ```
/// use pegboard_core::owner::{Owner, Principals};
///
/// let principals = Principals::default();
/// principals.observe(&Owner::local());
/// principals.observe(&Owner::local());
/// assert!(!principals.are_several());
/// principals.observe(&Owner::new("ann"));
/// assert!(principals.are_several());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Principals(Arc<ObservedPrincipals>);

#[derive(Debug, Default)]
struct ObservedPrincipals {
    first: OnceLock<Owner>,
    are_several: AtomicBool,
}

impl Principals {
    /// Records a principal.
    pub fn observe(&self, owner: &Owner) {
        if !self.are_several() && self.0.first.get_or_init(|| owner.clone()) != owner {
            self.0.are_several.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `true` if there is more than one principal.
    pub fn are_several(&self) -> bool {
        self.0.are_several.load(Ordering::Relaxed)
    }
}
