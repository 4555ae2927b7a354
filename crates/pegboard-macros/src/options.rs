//! Options of `#[tool(…)]`.

use std::fmt;

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Ident, Lit, LitBool, LitStr, Path, Token, parenthesized, parse_quote, token};

use crate::errors::Errors;
use crate::nearest::nearest;

const NAMES: [&str; 11] = [
    "name",
    "title",
    "description",
    "tags",
    "read_only",
    "destructive",
    "idempotent",
    "open_world",
    "input_schema",
    "output_schema",
    "crate",
];

/// Parsed options of a tool.
pub(crate) struct ToolOptions {
    pub(crate) name: Option<Expr>,
    pub(crate) title: Option<Expr>,
    pub(crate) description: Option<Expr>,
    pub(crate) tags: Vec<LitStr>,
    /// Annotation flags that were given, by their field names in `ToolAnnotations`.
    pub(crate) annotations: Vec<(Ident, LitBool)>,
    pub(crate) input_schema: Option<Expr>,
    pub(crate) output_schema: Option<Expr>,
    /// Path of the pegboard crate in generated code.
    pub(crate) pegboard: Path,
}

impl ToolOptions {
    /// Parses the valid options and reports the others.
    pub(crate) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut options = Self {
            name: None,
            title: None,
            description: None,
            tags: Vec::new(),
            annotations: Vec::new(),
            input_schema: None,
            output_schema: None,
            pegboard: parse_quote!(::pegboard),
        };
        let list = errors.handle(Punctuated::<ToolOption, Token![,]>::parse_terminated.parse2(tokens));
        let mut seen: Vec<Ident> = Vec::new();
        for option in list.into_iter().flatten() {
            if seen.contains(&option.name) {
                let name = &option.name;
                errors.push_spanned(name, format_args!("duplicate option `{name}`: keep one"));
                continue;
            }
            seen.push(option.name.clone());
            errors.handle(options.set(&option));
        }
        options
    }

    fn set(&mut self, option: &ToolOption) -> syn::Result<()> {
        match option.name.to_string().as_str() {
            "name" => self.name = Some(option.string_value()?),
            "title" => self.title = Some(option.string_value()?),
            "description" => self.description = Some(option.string_value()?),
            "tags" => self.tags = option.strings()?,
            "read_only" | "destructive" | "idempotent" | "open_world" => {
                self.annotations.push((option.name.clone(), option.flag()?));
            }
            "input_schema" => self.input_schema = Some(option.schema()?),
            "output_schema" => self.output_schema = Some(option.schema()?),
            "crate" => self.pegboard = option.path()?,
            unknown => return Err(syn::Error::new_spanned(&option.name, unknown_option(unknown))),
        }
        Ok(())
    }
}

/// One option as written.
struct ToolOption {
    name: Ident,
    value: OptionValue,
}

enum OptionValue {
    /// `read_only`
    Absent,
    /// `name = "…"`
    One(Expr),
    /// `tags("…", "…")`
    Many(Vec<Expr>),
}

impl Parse for ToolOption {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let name = Ident::parse_any(input).map_err(|error| {
            let hint = format!(
                "expected an option of `#[tool]`, such as `description = \"…\"`\n{}",
                known_options()
            );
            syn::Error::new(error.span(), hint)
        })?;
        let value = if input.peek(token::Paren) {
            let list;
            parenthesized!(list in input);
            OptionValue::Many(
                Punctuated::<Expr, Token![,]>::parse_terminated(&list)?.into_iter().map(bare).collect(),
            )
        } else if input.parse::<Option<Token![=]>>()?.is_some() {
            OptionValue::One(bare(input.parse()?))
        } else {
            OptionValue::Absent
        };
        Ok(Self { name, value })
    }
}

impl ToolOption {
    fn string_value(&self) -> syn::Result<Expr> {
        let name = &self.name;
        match &self.value {
            OptionValue::One(Expr::Lit(ExprLit { lit: Lit::Str(text), .. }))
                if text.value().trim().is_empty() =>
            {
                Err(self.error(format_args!("`{name}` must not be empty")))
            }
            OptionValue::One(text @ (Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) | Expr::Macro(_))) => {
                Ok(text.clone())
            }
            OptionValue::Absent | OptionValue::One(_) | OptionValue::Many(_) => {
                Err(self.error(format_args!("`{name}` must be a string: `{name} = \"…\"`")))
            }
        }
    }

    fn strings(&self) -> syn::Result<Vec<LitStr>> {
        let items: Option<Vec<&Expr>> = match &self.value {
            OptionValue::One(Expr::Array(list)) => Some(list.elems.iter().collect()),
            OptionValue::Many(list) => Some(list.iter().collect()),
            OptionValue::Absent | OptionValue::One(_) => None,
        };
        let strings = items.and_then(|items| items.into_iter().map(string).collect());
        strings.ok_or_else(|| self.error("`tags` must be a list of strings: `tags(\"…\", \"…\")`"))
    }

    fn flag(&self) -> syn::Result<LitBool> {
        let name = &self.name;
        match &self.value {
            OptionValue::Absent => Ok(LitBool::new(true, name.span())),
            OptionValue::One(Expr::Lit(ExprLit { lit: Lit::Bool(flag), .. })) => Ok(flag.clone()),
            OptionValue::One(_) | OptionValue::Many(_) => {
                Err(self.error(format_args!("`{name}` is a flag: use `{name}` or `{name} = false`")))
            }
        }
    }

    fn schema(&self) -> syn::Result<Expr> {
        let name = &self.name;
        match &self.value {
            OptionValue::One(schema) => Ok(schema.clone()),
            OptionValue::Absent | OptionValue::Many(_) => {
                Err(self.error(format_args!("`{name}` must be a schema: `{name} = json!({{…}})`")))
            }
        }
    }

    fn path(&self) -> syn::Result<Path> {
        match &self.value {
            OptionValue::One(Expr::Path(path)) => Ok(path.path.clone()),
            OptionValue::Absent | OptionValue::One(_) | OptionValue::Many(_) => {
                Err(self
                    .error("`crate` must be the path of the pegboard crate: `crate = ::toolkit::pegboard`"))
            }
        }
    }

    /// Creates an error at the value of the option, or at its name if it has none.
    fn error(&self, message: impl fmt::Display) -> syn::Error {
        match &self.value {
            OptionValue::One(value) => syn::Error::new_spanned(value, message),
            OptionValue::Absent | OptionValue::Many(_) => syn::Error::new_spanned(&self.name, message),
        }
    }
}

fn unknown_option(name: &str) -> String {
    match nearest(name, &NAMES) {
        Some(meant) => {
            format!("unknown option `{name}` of `#[tool]`: did you mean `{meant}`?\n{}", known_options())
        }
        None => format!("unknown option `{name}` of `#[tool]`\n{}", known_options()),
    }
}

fn known_options() -> String {
    format!("available options: {}", NAMES.join(", "))
}

fn string(expression: &Expr) -> Option<LitStr> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
        _ => None,
    }
}

/// Strips the invisible group around a `macro_rules!` fragment.
fn bare(expression: Expr) -> Expr {
    match expression {
        Expr::Group(group) => bare(*group.expr),
        other => other,
    }
}
