//! Servers that misbehave, each in exactly one way.
//!
//! Otherwise they are correct servers of the session era with two tools: `echo` returns its `text`, and
//! `count` writes a line to the [`Journal`](journal::Journal). A fault in a call affects `count`, after it
//! has counted; `echo` keeps working. They write raw bytes, since a correct encoder could not produce most of
//! these faults.

pub mod http;
pub mod journal;
pub mod stdio;
mod well_behaved;

/// Defines an enum of fault modes with their names.
macro_rules! modes {
    ($(#[$of_all:meta])* pub enum $modes:ident { $($(#[$of_one:meta])* $mode:ident = $name:literal,)* }) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $modes { $($(#[$of_one])* $mode,)* }

        impl $modes {
            /// All modes.
            pub const ALL: &[Self] = &[$(Self::$mode,)*];

            /// Returns the name of the mode.
            pub fn name(self) -> &'static str {
                match self { $(Self::$mode => $name,)* }
            }
        }

        impl std::str::FromStr for $modes {
            type Err = std::io::Error;

            fn from_str(name: &str) -> std::io::Result<Self> {
                Self::ALL.iter().find(|mode| mode.name() == name).copied().ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|mode| mode.name()).collect();
                    std::io::Error::other(format!("unknown mode '{name}'; expected one of {}", names.join(", ")))
                })
            }
        }
    };
}
use modes;

/// Returns the secret from the environment, for servers that leak it.
fn secret() -> String {
    std::env::var(SECRET).unwrap_or_default()
}

/// Environment variable with a secret.
pub const SECRET: &str = "HOSTILE_SECRET";
