//! The code that `#[tool]` puts in the place of a function.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Ident, Signature};

use crate::description;
use crate::function::{Function, Input, Parameter};
use crate::item::Item;
use crate::mistakes::Mistakes;
use crate::settings::Settings;

/// The function as it was written, and its tool beside it; or everything that is wrong with it.
pub(crate) fn tool(settings: TokenStream, item: &TokenStream) -> TokenStream {
    let Ok(mut item) = syn::parse2::<Item>(item.clone()) else {
        let message = "`#[tool]` makes a function a tool: put it on a `fn` that has a body";
        let mistake = syn::Error::new(Span::call_site(), message).into_compile_error();
        return quote!(#mistake #item);
    };
    let mut mistakes = Mistakes::default();
    let settings = Settings::read(settings, &mut mistakes);
    let description = description::read(&settings, &item, &mut mistakes);
    let function = Function::read(&mut item.signature, &mut mistakes);
    if let (Some(_), Some(function)) = (&settings.input_schema, &function) {
        function.refuse_schemars(&mut mistakes);
    }
    if item.signature.receiver().is_some() {
        // Types cannot be declared between methods.
        return quote!(#mistakes #item);
    }
    let entry = match (&function, &description) {
        (Some(function), Some(description)) if mistakes.is_empty() => {
            Tool { settings: &settings, description, signature: &item.signature, function }.entry()
        }
        // The mistakes are reported here and not once more where the tool is named.
        _ => quote!(::core::unreachable!()),
    };
    let companion = companion(&item, &settings, &entry);
    quote!(#mistakes #item #companion)
}

/// The type that carries the tool under the function's name, out of the function's way.
fn companion(item: &Item, settings: &Settings, entry: &TokenStream) -> TokenStream {
    let (name, visibility, pegboard) = (&item.signature.ident, &item.visibility, &settings.pegboard);
    let conditions: Vec<_> =
        item.attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect();
    let documentation = format!("The function `{name}` as a tool, for `tools!`.");
    quote! {
        #(#conditions)*
        #[doc = #documentation]
        #[allow(non_camel_case_types, unreachable_pub)]
        #visibility struct #name {}

        #(#conditions)*
        #[allow(clippy::all, clippy::pedantic, deprecated, non_snake_case, unreachable_pub)]
        impl #name {
            /// The tool, ready to be registered.
            #[must_use]
            pub fn tool_entry() -> #pegboard::entry::ToolEntry {
                #entry
            }
        }
    }
}

/// What is known of a tool when nothing is wrong with it.
struct Tool<'a> {
    settings: &'a Settings,
    description: &'a TokenStream,
    signature: &'a Signature,
    function: &'a Function,
}

impl Tool<'_> {
    /// The body of `tool_entry`.
    fn entry(&self) -> TokenStream {
        let (pegboard, description) = (&self.settings.pegboard, self.description);
        let name = match &self.settings.name {
            Some(name) => name.to_token_stream(),
            None => self.signature.ident.unraw().to_string().to_token_stream(),
        };
        let (input, answer) = (self.input(), &self.function.answer.ty);
        let (arguments, call, details) = (self.arguments(), self.call(), self.details());
        // Names of this site cannot be confused with names in the user's code.
        quote_spanned! {Span::mixed_site()=>
            #arguments
            #pegboard::entry::ToolEntry::from_fn::<#input, #answer, _, _>(
                #name,
                #description,
                |arguments: #input| async move { #call },
            )
            #details
        }
    }

    /// The type of the argument object.
    fn input(&self) -> TokenStream {
        match &self.function.input {
            Input::Parameters(_) => quote!(__PegboardArguments),
            Input::Whole(ty) => ty.to_token_stream(),
        }
    }

    /// The declaration of the argument object, if it is ours to declare.
    fn arguments(&self) -> Option<TokenStream> {
        let Input::Parameters(parameters) = &self.function.input else { return None };
        let (pegboard, input) = (&self.settings.pegboard, self.input());
        // Some callers of models insist on `properties`, even when there are none.
        let no_properties = parameters.is_empty().then(|| quote!(, extend("properties" = {})));
        let derives_schema = self.settings.input_schema.is_none().then(|| {
            quote! {
                #[derive(#pegboard::schemars::JsonSchema)]
                #[schemars(crate = "__pegboard::schemars" #no_properties)]
            }
        });
        let fields =
            parameters.iter().map(|Parameter { name, ty, attributes }| quote!(#(#attributes)* #name: #ty));
        Some(quote! {
            use #pegboard as __pegboard;

            #[derive(#pegboard::serde::Deserialize)]
            #[serde(crate = "__pegboard::serde", deny_unknown_fields, expecting = "an object of arguments")]
            #derives_schema
            struct #input {
                #(#fields,)*
            }
        })
    }

    /// The call of the function with the fields of `arguments`.
    fn call(&self) -> TokenStream {
        let (function, pegboard) = (&self.signature.ident, &self.settings.pegboard);
        let site = Span::mixed_site();
        let arguments = Ident::new("arguments", site);
        let arguments = match &self.function.input {
            Input::Parameters(parameters) => {
                let names = parameters.iter().map(|parameter| &parameter.name);
                quote!(#(#arguments.#names),*)
            }
            Input::Whole(_) => quote!(#arguments),
        };
        let wait = self.signature.asyncness.map(|_| quote!(.await));
        let Some(error) = &self.function.answer.error else {
            return quote!(::core::result::Result::Ok(#function(#arguments)#wait));
        };
        // An error that cannot be displayed is reported where the function names it.
        let failure = quote_spanned! {site.located_at(error.span())=>
            |error| #pegboard::error::ToolError::new(::core::format_args!("{error:#}"))
        };
        quote!(#function(#arguments)#wait.map_err(#failure))
    }

    /// Schemas, title, tags and annotations.
    fn details(&self) -> TokenStream {
        let Settings { title, tags, annotations, input_schema, output_schema, pegboard, .. } = self.settings;
        let (input, answer) = (self.input(), &self.function.answer);
        let of_input = || quote!(#pegboard::schema::Schema::of_input::<#input>());
        let input_schema = input_schema.as_ref().map_or_else(of_input, ToTokens::to_token_stream);
        let output_schema = match (output_schema, &answer.ty) {
            (Some(schema), _) => quote!(.with_output_schema(#schema)),
            (None, _) if answer.is_unit() => TokenStream::new(),
            (None, ty) => quote!(.with_output_schema(#pegboard::schema::Schema::of_output::<#ty>())),
        };
        let title = title.as_ref().map(|title| quote!(.with_title(#title)));
        let tags = (!tags.is_empty()).then(|| quote!(.with_tags([#(#tags),*])));
        let annotations = (!annotations.is_empty()).then(|| {
            let flags =
                annotations.iter().map(|(flag, value)| quote!(#flag: ::core::option::Option::Some(#value)));
            quote! {
                .with_annotations(#pegboard::entry::Annotations {
                    #(#flags,)*
                    ..::core::default::Default::default()
                })
            }
        });
        quote!(.with_input_schema(#input_schema) #output_schema #title #tags #annotations)
    }
}
