//! The `#[tool]` attribute: turns a Rust function into a tool.
//!
//! Expansion goes through these modules:
//!
//! - `item`: the annotated function;
//! - `options`: the options of `#[tool(…)]`;
//! - `description`: the description: the option, or else the doc comment;
//! - `signature`: parameters, output and error type;
//! - `expand`: code generation;
//! - `errors`: collected compile errors;
//! - `nearest`: suggestions for misspelt options.

use proc_macro::TokenStream;

mod description;
mod errors;
mod expand;
mod item;
mod nearest;
mod options;
mod signature;

/// Turns a function into a tool.
///
/// The function itself is unchanged; `tools![…]` makes an entry of it that can be registered:
///
/// ```ignore
/// use pegboard::prelude::*;
///
/// /// Convert a temperature to Fahrenheit.
/// #[tool(tags("units"), read_only)]
/// async fn fahrenheit(
///     /// Degrees Celsius
///     celsius: f64,
///     /// Decimals to keep; two when absent
///     places: Option<u8>,
/// ) -> Result<f64> {
///     let scale = 10f64.powi(places.unwrap_or(2).into());
///     Ok(((celsius * 9.0 / 5.0 + 32.0) * scale).round() / scale)
/// }
///
/// let registry = ToolRegistry::new().with(tools![fahrenheit])?;
/// let outcome = registry.invoke("fahrenheit", json!({"celsius": 21.5})).await;
/// assert_eq!(outcome.data, 70.7);
/// assert_eq!(fahrenheit(21.5, None).await?, 70.7);
/// ```
///
/// # The function
///
/// A free function, `async` or not, anywhere: in a module (`tools![weather::now]`), inside another function,
/// with any visibility. It must not be generic, and it owns its parameters: `String`, not `&str`.
///
/// **Description.** The doc comment is the description, which is all that a model knows about the tool; a
/// parameter's doc comment describes the parameter. A long description may live in its own file: `#[doc =
/// include_str!("search.md")]`.
///
/// **Parameters** are the keys of the argument object. Each type is `Deserialize` and `JsonSchema`; an
/// `Option` may be omitted; unknown keys are rejected. A tool without parameters takes `{}`. `#[serde(…)]`
/// and `#[schemars(…)]` on a parameter work as on a struct field:
///
/// ```ignore
/// /// Roll dice.
/// #[tool]
/// fn roll(
///     #[schemars(range(min = 1, max = 100))] dice: u8,
///     #[serde(default = "six")] sides: u8,
///     #[serde(rename = "type")] kind: Kind,
/// ) -> Vec<u8> {
///     /* … */
/// }
/// ```
///
/// A single parameter may be marked `#[arguments]`: it then is the whole argument object, of a type that
/// derives `Deserialize` and `JsonSchema`.
///
/// **The output** is any type that is `Serialize` and `JsonSchema`. If the function returns a `Result` (under
/// any path: `anyhow::Result` and `std::io::Result` too), the first type is the output, and every error that
/// implements `Display` fails the call with its own message. A tool that returns nothing, or `Result<()>`,
/// has no output schema.
///
/// # Options
///
/// | option | meaning |
/// |---|---|
/// | `name = "…"` | tool name, instead of the function's |
/// | `title = "…"` | display name |
/// | `description = "…"` | description, instead of the doc comment |
/// | `tags("…", "…")`, `tags = ["…", "…"]` | search tags |
/// | `read_only` | has no side effects |
/// | `destructive` | may destroy data |
/// | `idempotent` | repeating a call with the same arguments has no further effect |
/// | `open_world` | interacts with systems beyond this program |
/// | `input_schema = …` | schema of the arguments; parameters then need only `Deserialize` |
/// | `output_schema = …` | schema of the output; the output then needs only `Serialize` |
/// | `crate = …` | path of the pegboard crate, if not `::pegboard` |
///
/// The four flags are unspecified unless given; `destructive = false` denies one. A schema is any expression
/// that is `Into<Schema>`, such as `json!({…})`. A string may also be a macro that expands to one, such as
/// `include_str!("search.md")`.
///
/// # Expansion
///
/// ```ignore
/// async fn fahrenheit(celsius: f64, places: Option<u8>) -> Result<f64> { /* as written */ }
///
/// struct fahrenheit {} // functions and types have separate names, so both can be called this
///
/// impl fahrenheit {
///     pub fn tool_entry() -> ToolEntry {
///         #[derive(Deserialize, JsonSchema)]
///         #[serde(deny_unknown_fields)]
///         struct Arguments {
///             /// Degrees Celsius
///             celsius: f64,
///             /// Decimals to keep; two when absent
///             places: Option<u8>,
///         }
///         ToolEntry::from_fn(
///             "fahrenheit",
///             "Convert a temperature to Fahrenheit.",
///             |arguments: Arguments| async move {
///                 fahrenheit(arguments.celsius, arguments.places)
///                     .await
///                     .map_err(|error| ToolError::new(format_args!("{error:#}")))
///             },
///         )
///         .with_input_schema(Schema::of_input::<Arguments>())
///         .with_output_schema(Schema::of_output::<f64>())
///         .with_tags(["units"])
///         .with_annotations(ToolAnnotations { read_only: Some(true), ..Default::default() })
///     }
/// }
/// ```
///
/// `tools![fahrenheit]` is `[<fahrenheit>::tool_entry()]`. Because of the struct, a type or module in the same
/// scope must not have the function's name.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::tool(options.into(), &item.into()).into()
}
