//! Amounts of money.

/// An amount with its currency: `$1.84`, `€2.00`, `2.00 GBP`. Less than half a cent is not nothing.
pub fn money(currency: &str, amount: f64) -> String {
    let digits = if amount > 0.0 && amount < 0.005 { 4 } else { 2 };
    match currency {
        "USD" => format!("${amount:.digits$}"),
        "EUR" => format!("€{amount:.digits$}"),
        "" => format!("{amount:.digits$}"),
        _ => format!("{amount:.digits$} {currency}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_their_currency() {
        for (currency, amount, shown) in [
            ("USD", 1.837, "$1.84"),
            ("EUR", 2.0, "€2.00"),
            ("GBP", 2.0, "2.00 GBP"),
            ("", 1.5, "1.50"),
            ("USD", 0.0012, "$0.0012"),
            ("USD", 0.0, "$0.00"),
        ] {
            assert_eq!(money(currency, amount), shown);
        }
    }
}
