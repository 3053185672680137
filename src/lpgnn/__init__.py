"""lpgnn"""
