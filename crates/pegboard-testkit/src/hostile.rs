//! Servers that misbehave, each in exactly one way.
//!
//! Apart from that one way they are decent servers of the session era with two tools: `echo` gives back its `text`,
//! and `count` leaves a line in the [`Journal`](journal::Journal). Where the fault is one of a call, it is a fault of
//! `count`, after it has counted; `echo` goes on working. They write raw bytes, since a decent writer could not do
//! most of this.

pub mod http;
pub mod journal;
mod manners;
pub mod stdio;

/// Modes with their names.
macro_rules! modes {
    ($(#[$of_all:meta])* pub enum $modes:ident { $($(#[$of_one:meta])* $mode:ident = $name:literal,)* }) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $modes { $($(#[$of_one])* $mode,)* }

        impl $modes {
            /// Every mode there is.
            pub const ALL: &[Self] = &[$(Self::$mode,)*];

            /// What it is called.
            pub fn name(self) -> &'static str {
                match self { $(Self::$mode => $name,)* }
            }
        }

        impl std::str::FromStr for $modes {
            type Err = std::io::Error;

            fn from_str(name: &str) -> std::io::Result<Self> {
                Self::ALL.iter().find(|mode| mode.name() == name).copied().ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|mode| mode.name()).collect();
                    std::io::Error::other(format!("there is no mode '{name}'; there are {}", names.join(", ")))
                })
            }
        }
    };
}
use modes;

/// The secret that a server was given, for those that cannot keep it.
fn secret() -> String {
    std::env::var(SECRET).unwrap_or_default()
}

/// The variable with a secret.
pub const SECRET: &str = "HOSTILE_SECRET";
