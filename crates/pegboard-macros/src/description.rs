//! The words that a model reads: the setting, or else the doc comment.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

use crate::item::Item;
use crate::mistakes::Mistakes;
use crate::settings::Settings;

/// The description as an expression. That there is none is a mistake.
pub(crate) fn read(settings: &Settings, item: &Item, mistakes: &mut Mistakes) -> Option<TokenStream> {
    let description = match &settings.description {
        Some(text @ Expr::Macro(_)) => Some(quote!(#text.trim())),
        Some(text) => Some(text.to_token_stream()),
        None => doc_comment(&item.attributes),
    };
    // A setting that is not understood may have been meant as the description.
    if description.is_none() && mistakes.is_empty() {
        let name = &item.signature.ident;
        let message = format_args!(
            "a tool needs a description, it is all that a model knows of it: \
             write a `///` comment above `{name}`, or `#[tool(description = \"…\")]`"
        );
        mistakes.at(name, message);
    }
    description
}

fn doc_comment(attributes: &[Attribute]) -> Option<TokenStream> {
    let parts: Vec<&Expr> = attributes.iter().filter_map(doc).collect();
    if let Some(lines) = parts.iter().map(|part| lines(part)).collect::<Option<Vec<String>>>() {
        let text = lines.join("\n");
        let text = text.trim();
        return (!text.is_empty()).then(|| quote!(#text));
    }
    // The text of `#[doc = include_str!("…")]` is not known before the code is compiled.
    let parts = parts.iter().map(|part| lines(part).map_or_else(|| quote!(#part), |lines| quote!(#lines)));
    Some(quote!(::core::concat!(#(#parts, "\n"),*).trim()))
}

fn doc(attribute: &Attribute) -> Option<&Expr> {
    match &attribute.meta {
        Meta::NameValue(doc) if doc.path.is_ident("doc") => Some(&doc.value),
        _ => None,
    }
}

/// The lines of one part, without the space that follows `///`.
fn lines(part: &Expr) -> Option<String> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = part else { return None };
    let text = text.value();
    let lines: Vec<&str> =
        text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    Some(lines.join("\n"))
}
