"""How far answers lie from a reference: measures, verdict, report and picture."""
